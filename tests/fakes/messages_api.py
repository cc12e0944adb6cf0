"""A wire-level fake of the Anthropic Messages API: scripted replies, the service's own checks.

It serves POST /v1/messages and /v1/messages/count_tokens, GET /v1/models[/{id}], and
GET /_requests with what it has seen. In a test:

    with FakeMessagesAPI([reply(call("python", {"code": "1+1"})), "Two."]) as fake:
        client = Anthropic(api_key="k", base_url=fake.base_url, http_client=httpx2.Client(trust_env=False))

As a process: `python -m tests.fakes.messages_api --port 0 --script replies.json` prints its URL.

Context edits are applied and told (`context_edits`); `note` writes the service's own compaction. Not modelled:
compaction on demand (accepted with its beta header, never made), thinking cleared by an edit, server-held threads, deferred tool loading beyond the prefix, rate limits other than scripted ones.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.fakes import cache, context_edits, prefix
from tests.fakes.answers import error_answer, json_answer, message_answer
from tests.fakes.catalog import MODELS, ModelFacts
from tests.fakes.errors import Refused, error_body
from tests.fakes.prefix import extends
from tests.fakes.replies import (
    Fault,
    Pace,
    Reply,
    call,
    http_error,
    rate_limited,
    redacted,
    reply,
    reply_from_json,
    server_call,
    text,
    thinking,
)
from tests.fakes.server import Answer, LoopbackServer
from tests.fakes.validation import BINDING_BETA, betas, check_headers, check_request

__all__ = [
    "FakeMessagesAPI",
    "Fault",
    "Pace",
    "RecordedRequest",
    "Reply",
    "call",
    "extends",
    "http_error",
    "rate_limited",
    "redacted",
    "reply",
    "server_call",
    "text",
    "thinking",
]

JSON = dict[str, Any]
Script = Iterable[Reply | str] | Callable[[JSON], Reply | str]
MAX_BODY_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """One request as it arrived, and what became of it.

    `canonical`: tools, system, then the messages as a stream of blocks, without breakpoints.
    `refusal`: the message of a 4xx made by the fake's checks. `usage`: set once a message is
    being answered; scripted errors have none.
    """

    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: JSON
    canonical: bytes
    refusal: str | None = None
    usage: cache.InputUsage | None = None

    def as_json(self) -> JSON:
        """Return what GET /_requests shows."""
        return {
            "path": self.path,
            "headers": dict(self.headers),
            "body": self.body,
            "canonical": self.canonical.decode("utf-8", "replace"),
            "refusal": self.refusal,
            "usage": self.usage.as_json() if self.usage else None,
        }


class FakeMessagesAPI:
    """The service on a free loopback port; use it as a context manager.

    Args:
        script: replies in order, or a function of the request body. A string is a text reply.
        repeat: start over when the list is used up, instead of answering 500.
        api_key: the only key accepted; None accepts any.
        window_tokens: context window of every model; None takes the model's own.
        count: tokens of one canonical block.
        clock: seconds, for the lifetime of cached prefixes.
        min_cache_tokens: shortest prefix that is cached.
        port: 0 takes a free one.
        note: the text of a compaction, from the request body; None as its text is one that failed.
        least_trigger: smallest trigger of a compaction that is taken.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        repeat: bool = False,
        api_key: str | None = None,
        window_tokens: int | None = None,
        count: Callable[[bytes], int] = cache.estimate_tokens,
        clock: Callable[[], float] = time.monotonic,
        min_cache_tokens: int = cache.MIN_CACHE_TOKENS,
        port: int = 0,
        note: Callable[[JSON], str | None] = lambda body: "The service's own note of the conversation so far.",
        least_trigger: int = context_edits.LEAST_COMPACT_TRIGGER,
    ) -> None:
        self.requests: list[RecordedRequest] = []
        self.count_requests: list[RecordedRequest] = []
        self.problems: list[str] = []
        self.window_tokens = window_tokens
        self.cache = cache.PromptCache(count=count, clock=clock, min_tokens=min_cache_tokens)
        self._answer_of = script if callable(script) else None
        self._queue: deque[Reply | str] = deque(() if callable(script) else script)
        self._repeat = repeat
        self._api_key = api_key
        self._count = count
        self._note = note
        self._least_trigger = least_trigger
        self._notes: list[JSON] = []
        self._failing: Reply | None = None
        self._failures_left = 0
        self._issued: dict[str, list[tuple[bytes, ...]]] = {}
        self._numbers: dict[str, int] = {}
        self._lock = threading.RLock()
        self._server = LoopbackServer(self._answer, port)

    @property
    def base_url(self) -> str:
        """What a client takes as base_url."""
        return self._server.url

    def __enter__(self) -> FakeMessagesAPI:
        self._server.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.stop()

    def on_stall(self, call: Callable[[Callable[[], bool]], None]) -> None:
        """Have `call` called during each stall; see LoopbackServer."""
        self._server.on_stall = call

    def enqueue(self, *replies: Reply | str) -> None:
        """Add replies to the end of the script."""
        self._queue.extend(replies)

    def bill(self) -> cache.Bill:
        """Return the input price of the answered requests, with and without caching."""
        return cache.bill(request.usage for request in self.requests if request.usage is not None)

    def _answer(self, method: str, path: str, headers: Mapping[str, str], raw: bytes) -> Answer:
        request_id = self._next("req_")
        try:
            answer = self._route(method, path.split("?")[0], headers, raw)
        except Refused as problem:
            body = error_body(problem.status, problem.message, request_id=request_id)
            answer = Answer(status=problem.status, headers={"content-type": "application/json"}, body=body)
        return replace(answer, headers={"request-id": request_id, **answer.headers})

    def _route(self, method: str, path: str, headers: Mapping[str, str], raw: bytes) -> Answer:
        if (method, path) == ("GET", "/_requests"):
            return json_answer([request.as_json() for request in self.requests])
        if len(raw) > MAX_BODY_BYTES:
            raise Refused("Request exceeds the maximum size", 413)
        check_headers(headers, self._api_key)
        match method, path.rstrip("/").split("/")[1:]:
            case "POST", ["v1", "messages"]:
                return self._checked(self.requests, path, headers, raw, self._message)
            case "POST", ["v1", "messages", "count_tokens"]:
                return self._checked(self.count_requests, path, headers, raw, self._token_count)
            case "GET", ["v1", "models"]:
                return self._model_list()
            case "GET", ["v1", "models", name] if name in MODELS:
                return json_answer(MODELS[name].as_json(self.window_tokens))
            case "GET", ["v1", "models", name]:
                raise Refused(f"model: {name}", 404)
        raise Refused(f"Not found: {method} {path}", 404)

    def _checked(
        self,
        log: list[RecordedRequest],
        path: str,
        headers: Mapping[str, str],
        raw: bytes,
        serve: Callable[[RecordedRequest, int], Answer],
    ) -> Answer:
        """Record a request, then serve it; a refusal is added to the record."""
        body = _parsed(raw)
        known = body if isinstance(body, dict) else {}
        record = RecordedRequest(
            path=path, headers=dict(headers), raw=raw, body=known, canonical=prefix.canonical_bytes(known)
        )
        with self._lock:
            log.append(record)
            place = len(log) - 1
        try:
            if not isinstance(body, dict):
                raise Refused("The request body is not valid JSON" if body is None else "Input should be an object")
            return serve(record, place)
        except Refused as problem:
            log[place] = replace(record, refusal=problem.message)
            raise

    def _token_count(self, record: RecordedRequest, place: int) -> Answer:
        check_request(record.body, record.headers, counting=True)
        return json_answer({"input_tokens": self.cache.tokens(prefix.prompt_blocks(record.body))})

    def _model_list(self) -> Answer:
        found = [facts.as_json(self.window_tokens) for facts in MODELS.values()]
        return json_answer({"data": found, "has_more": False, "first_id": found[0]["id"], "last_id": found[-1]["id"]})

    def _message(self, record: RecordedRequest, place: int) -> Answer:
        body = record.body
        facts = check_request(body, record.headers)
        context_edits.check_edits(
            body, betas(record.headers), compacts=facts.compacts, least_trigger=self._least_trigger
        )
        bound = self._bound_prompt(record, facts)
        seen = context_edits.seen_prompt(body, bound.blocks, self._count, self._notes)
        self._check_window(seen.blocks, facts)
        chosen = self._take(body)
        fault = chosen.fault
        if fault is not None and fault.kind == "http_error":
            return error_answer(fault)
        with self._lock:
            plan = self.cache.plan(body, seen.blocks)
            if seen.compacts:
                chosen = replace(chosen, blocks=(self._compaction(body), *chosen.blocks))
            message = self._finished(chosen, record, facts, bound, plan.usage)
            if body.get("context_management"):
                message["context_management"] = {"applied_edits": list(seen.applied)}
            if seen.compacts:
                message["usage"] |= self._iterations(seen, message)
            self.requests[place] = replace(record, usage=plan.usage)
        wait_s = fault.seconds if fault is not None and fault.kind == "stall_before_headers" else 0.0
        return replace(
            message_answer(message, chosen, streaming=body.get("stream") is True),
            wait_s=wait_s,
            begun=lambda: self.cache.commit(plan),
        )

    def _bound_prompt(self, record: RecordedRequest, facts: ModelFacts) -> prefix.BoundPrompt:
        blocks = prefix.prompt_blocks(record.body)
        settings = record.body.get("thinking") or {}
        if settings.get("type") != "disabled":
            prefix.check_open_loop(blocks, facts.id, self._issued)
        drops = (settings.get("block_binding") or {}).get("prefix_mismatch_behavior") == "drop_block"
        return prefix.check_thinking(blocks, facts.id, binds=facts.binds_thinking, drops=drops)

    def _compaction(self, body: JSON) -> JSON:
        block = {"type": "compaction", "content": self._note(body), "encrypted_content": self._next("sealed_")}
        self._notes.append(block)
        return block

    def _iterations(self, seen: context_edits.SeenPrompt, message: JSON) -> JSON:
        """Return the usage of a reply that compacted: the top level leaves the compaction out."""
        note = message["content"][0]
        if note["content"] is None:
            return {}
        written = self._count(json.dumps(note).encode())
        head = sum(self._count(b.line) for b in seen.blocks if b.part != "messages")
        output = message["usage"]["output_tokens"]
        whole = {k: v for k, v in message["usage"].items() if "input_tokens" in k}
        rest = {"input_tokens": head + written, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        return {
            **rest,
            "iterations": [
                {"type": "compaction", **whole, "output_tokens": written},
                {"type": "message", **rest, "output_tokens": output},
            ],
        }

    def _check_window(self, blocks: Sequence[prefix.PromptBlock], facts: ModelFacts) -> None:
        size, limit = self.cache.tokens(blocks), self.window_tokens or facts.window_tokens
        if size > limit:
            raise Refused(f"prompt is too long: {size} tokens > {limit} maximum")

    def _take(self, body: JSON) -> Reply:
        """Return the next reply; one with failing attempts fails first and is then given whole."""
        if body["max_tokens"] == 0:
            return Reply(stop_reason="max_tokens")  # warms the cache, generates nothing
        with self._lock:
            failing = self._failing
            if failing is not None and self._failures_left == 0:
                self._failing = None
                return replace(failing, fault=None)
            if failing is not None:
                self._failures_left -= 1
                return failing
        chosen = self._next_reply(body)  # without the lock: a script may wait for other requests
        if chosen.fault is not None and chosen.fault.attempts:
            self._failing, self._failures_left = chosen, chosen.fault.attempts - 1
        return chosen

    def _next_reply(self, body: JSON) -> Reply:
        if self._answer_of is not None:
            try:
                found: Reply | str = self._answer_of(body)
            except Exception as problem:
                return self._broken_script(f"the script raised {problem!r}")
        elif self._queue:
            found = self._queue.popleft()
            if self._repeat:
                self._queue.append(found)
        else:
            return self._broken_script(f"the script has no reply to request {len(self.requests)}")
        return reply(found) if isinstance(found, str) else found

    def _broken_script(self, problem: str) -> Reply:
        self.problems.append(problem)
        return Reply(fault=http_error(500, problem, headers={"x-should-retry": "false"}))

    def _finished(
        self,
        chosen: Reply,
        record: RecordedRequest,
        facts: ModelFacts,
        bound: prefix.BoundPrompt,
        usage: cache.InputUsage,
    ) -> JSON:
        """Return the message as the non-streaming API gives it."""
        message: JSON = {
            "id": self._next("msg_"),
            "type": "message",
            "role": "assistant",
            "model": facts.id,
            "content": self._content(chosen, record.body, facts, bound),
            "stop_reason": chosen.reason(),
            "stop_sequence": chosen.stop_sequence,
            "stop_details": chosen.stop_details,
            "usage": {**usage.as_json(), **self._output_usage(chosen), "service_tier": "standard", **chosen.usage},
        }
        if BINDING_BETA in betas(record.headers):
            message["input_transformations"] = list(bound.transformations)
        return message

    def _output_usage(self, chosen: Reply) -> JSON:
        sizes = [(block["type"], self._count(json.dumps(block).encode())) for block in chosen.blocks]
        thought = sum(size for kind, size in sizes if kind in prefix.THINKING_TYPES)
        return {
            "output_tokens": sum(size for _, size in sizes),
            "output_tokens_details": {"thinking_tokens": thought},
        }

    def _content(self, chosen: Reply, body: JSON, facts: ModelFacts, bound: prefix.BoundPrompt) -> list[JSON]:
        """Return the blocks with ids and signatures; each signature covers the blocks before it."""
        usual = "omitted" if facts.omits_thinking else "summarized"
        display = (body.get("thinking") or {}).get("display") or usual
        before = prefix.bound_prefix(bound.blocks)
        content: list[JSON] = []
        for scripted in chosen.blocks:
            block = dict(scripted)
            match block["type"]:
                case "thinking":
                    block["thinking"] = block["thinking"] if display == "summarized" else ""
                    block.setdefault("signature", prefix.sign(facts.id, before.digest(), block["thinking"]))
                case "redacted_thinking":
                    block.setdefault("data", prefix.sign(facts.id, before.digest(), ""))
                case "tool_use" if not block.get("id"):
                    block["id"] = self._next("toolu_")
            content.append(block)
            before.feed(prefix.canonical_line("messages", "assistant", block))
        self._remember(facts, content)
        return content

    def _remember(self, facts: ModelFacts, content: Sequence[JSON]) -> None:
        lines = tuple(
            prefix.canonical_line("messages", "assistant", block)
            for block in content
            if block["type"] in prefix.THINKING_TYPES
        )
        for block in content:
            if block["type"] == "tool_use":
                self._issued.setdefault(prefix.issued_key(facts.id, block["id"]), []).append(lines)

    def _next(self, kind: str) -> str:
        with self._lock:
            self._numbers[kind] = self._numbers.get(kind, 0) + 1
            return f"{kind}{self._numbers[kind]:04d}"


def _parsed(raw: bytes) -> object:
    try:
        return json.loads(raw)
    except ValueError:
        return None


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the process is ended; print the URL first."""
    parser = argparse.ArgumentParser(description="A fake of the Anthropic Messages API on loopback.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--script", help="JSON file: a list of replies (strings, or objects with the fields of Reply)")
    parser.add_argument("--repeat", action="store_true", help="start over when the script is used up")
    parser.add_argument("--window-tokens", type=int, help="context window of every model")
    options = parser.parse_args(argv)
    script: list[Reply] = [reply("ok")]
    if options.script:
        with open(options.script, encoding="utf-8") as fh:
            script = [reply_from_json(value) for value in json.load(fh)]
    repeat = options.repeat or not options.script
    with FakeMessagesAPI(script, repeat=repeat, port=options.port, window_tokens=options.window_tokens) as fake:
        print(fake.base_url, flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
