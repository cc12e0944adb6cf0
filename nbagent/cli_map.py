"""`nbagent map`: one prompt over many inputs, from the command line."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from nbagent.core.errors import UsageProblem, counted
from nbagent.notebook.options import amount, positive
from nbagent.notebook.render import money
from nbagent.runtime.clock import SystemClock
from nbagent.runtime.map_inputs import MapInput, asked_of, map_inputs
from nbagent.runtime.map_results import MapResults, row_of
from nbagent.runtime.mapping import STOPPED, Answer, Mapped
from nbagent.runtime.mapping import Mapping as Run
from nbagent.runtime.ports import TurnOptions
from nbagent.runtime.session import Session
from nbagent.store.settings import Settings, load_settings

OF_A_NOTEBOOK = ("python", "inspect", "notebook")  # tools that need a kernel
JOBS = 4
SHOWN_CHARS = 60
N = TypeVar("N")


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOrder:
    """What was typed."""

    prompt: str
    places: tuple[Path, ...]
    each: str
    out: Path | None
    as_json: bool
    dry_run: bool
    jobs: int
    max_cost_usd: float | None
    options: TurnOptions


def order_of(parsed: argparse.Namespace) -> MapOrder:
    """Return what was typed as values.

    Raises:
        UsageProblem: a number is none.
    """
    tools = tuple(t for t in (w.strip() for w in (parsed.tools or "").split(",")) if t)
    options = TurnOptions(
        model=parsed.model, policy=parsed.policy, mode=parsed.mode, skill=parsed.skill,
        max_steps=_number("--max-steps", parsed.max_steps, positive), tools=tools if parsed.tools is not None else None,
    )  # fmt: skip
    return MapOrder(
        prompt=parsed.prompt, places=tuple(parsed.places), each=parsed.each, out=parsed.out, as_json=parsed.json,
        dry_run=parsed.dry_run, jobs=_number("--jobs", parsed.jobs, positive) or JOBS,
        max_cost_usd=_number("--max-cost", parsed.max_cost, amount), options=options,
    )  # fmt: skip


def _number(option: str, typed: str | None, read: Callable[[str], N]) -> N | None:
    try:
        return None if typed is None else read(typed)
    except argparse.ArgumentTypeError as error:
        raise UsageProblem(f"{option}: {error}; 'nbagent map --help' shows what there is") from None


def run_map(order: MapOrder, folder: Path, environ: Mapping[str, str]) -> int:
    """Ask the prompt of each input and print or write the answers; 1 when one failed or was not begun.

    Raises:
        UserError: what was typed cannot be done, or the first input could not be asked.
    """
    inputs = map_inputs(order.prompt, order.places, each=order.each, folder=folder)
    settings = _settings(folder, environ)
    asked = asked_of(order.prompt, _named(order, settings))
    if order.dry_run:
        return _show(inputs)
    with contextlib.ExitStack() as stack:
        results = None
        if order.out is not None:
            results = stack.enter_context(MapResults(order.out, asked=asked, folder=folder))
        left = inputs if results is None else results.begin(inputs)
        if results is not None and len(left) < len(inputs):
            print(_kept(len(inputs) - len(left), len(inputs), order.out), file=sys.stderr)
        if not left:
            return 0
        progress = Progress(len(left))

        def heard(answer: Answer) -> None:
            progress.clear()
            if results is not None:
                results.add(answer)
            else:
                _print(answer, asked, as_json=order.as_json)
            progress.show(answer)

        opened = _opener(folder, settings, environ)
        run = Run(
            left, open_session=opened, options=order.options, jobs=order.jobs, heard=heard,
            max_cost_usd=order.max_cost_usd,
        )  # fmt: skip
        try:
            ended = _ended(run)
        finally:
            progress.clear()
            if results is not None:
                results.finish(inputs)
        print(_summary(ended, order.out), file=sys.stderr)
        if ended.why == STOPPED:
            raise KeyboardInterrupt
        return int(ended.failed > 0 or ended.left > 0)


def _ended(run: Run) -> Mapped:
    """Return how a run ended, also one that was stopped: it ends in good order then."""
    with asyncio.Runner() as runner:
        try:
            return runner.run(run.run())
        except KeyboardInterrupt:
            return replace(run.now(), why=STOPPED)
        finally:
            run.close()


def _settings(folder: Path, environ: Mapping[str, str]) -> Settings:
    settings = load_settings(folder, environ)
    denied = (*settings.tools.deny, *OF_A_NOTEBOOK)
    return replace(settings, session=None, tools=replace(settings.tools, deny=denied))


def _named(order: MapOrder, settings: Settings) -> dict[str, object]:
    """Return what else decides on the answers, for the mark of what is asked."""
    chosen = order.options
    return {
        "each": order.each, "model": chosen.model or settings.model, "policy": chosen.policy or settings.policy,
        "mode": chosen.mode or settings.mode, "skill": chosen.skill,
        "tools": None if chosen.tools is None else sorted(chosen.tools),
    }  # fmt: skip


def _opener(folder: Path, settings: Settings, environ: Mapping[str, str]) -> Callable[[int], Session]:
    run = SystemClock().new_id()[:6]

    def opened(number: int) -> Session:
        name = f"map-{run}-{number}"
        return Session.open(
            folder=folder, notebook=None, settings=settings, home=Path(settings.home), name=name, environ=environ
        )

    return opened


class Progress:
    """One line on a terminal: how many are answered, and what they cost; elsewhere nothing."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._cost_usd = 0.0

    def show(self, answer: Answer) -> None:
        """Count an answer and show the line."""
        self._done += 1
        self._cost_usd += answer.cost_usd
        if sys.stderr.isatty():
            print(f"{self._done} of {self._total}, {money(self._cost_usd)}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Take the line away."""
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _print(answer: Answer, asked: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(row_of(answer, asked), ensure_ascii=False), flush=True)
        return
    print(f"== {_title(answer.input)}")
    print(answer.text or f"({answer.message})" if answer.answered else f"{answer.text}\n({answer.message})".lstrip())
    print(flush=True)


def _title(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"


def _show(inputs: tuple[MapInput, ...]) -> int:
    print(f"{counted(len(inputs), 'input')}; the first is asked:\n\n{inputs[0].prompt}\n")
    for one in inputs[1:]:
        print(f"{one.number}. {_title(one.value)}")
    return 0


def _kept(answered: int, inputs: int, out: Path | None) -> str:
    if answered == inputs:
        return f"{out} has an answer to each of them already ({inputs})"
    return f"{answered} of {inputs} are answered in {out}; going on"


def _summary(ended: Mapped, out: Path | None) -> str:
    parts = [f"{ended.answered} answered"]
    parts += [f"{ended.failed} failed"] if ended.failed else []
    parts += [f"{ended.left} not begun"] if ended.left else []
    why = f": {ended.why}" if ended.why else ""
    again = ""
    if out is not None:
        again = f"; answers in {out}"
        again += ", the same command goes on" if ended.failed or ended.left else ""
    return f"{', '.join(parts)}, {money(ended.cost_usd)}{why}{again}"
