"""A kernel's side of the panel that is played by a cell, with the bundles: for what a conversation cannot bring about at will.

`CELL` opens the comm, answers `hello` with a state and each command with the reply of the bundle to its name, and keeps
what it was sent in `heard`.
"""

from __future__ import annotations

import json
from typing import Any

from tests.browser.desk import ROOT

BUNDLES = ROOT / "tests" / "fixtures" / "bundles"


def bundle(name: str) -> Any:
    """Return a bundle."""
    return json.loads((BUNDLES / f"{name}.json").read_text(encoding="utf-8"))


def cell(parts: dict[str, Any], *, version: int = 1, least: int = 1, answers: dict[str, Any] | None = None) -> str:
    """Return the source of a cell that plays a kernel with this state; `answers` are results by command name."""
    results = {e["command"]["name"]: e["reply"]["result"] for e in bundle("commands")["exchanges"] if e["reply"]["result"]}
    pages = {
        e["command"]["of"]: e["reply"]["result"]
        for e in bundle("commands")["exchanges"]
        if e["command"]["name"] == "page" and e["reply"]["result"]
    }
    results.pop("page", None)
    played = json.dumps(
        {
            "parts": parts, "version": version, "least": least, "results": {**results, **(answers or {})},
            "pages": {**pages, **(answers or {}).get("page", {})}, "mismatch": bundle("versions")["message"],
            "older": next(c["line"] for c in bundle("versions")["cases"] if c["agreed"] is None and "the panel (" in c["line"] and c["front"]["least"] > c["kernel"]["version"]),
        }
    )  # fmt: skip
    return _SOURCE.replace("@PLAYED@", repr(played))


_SOURCE = """
import json
from comm import create_comm
from nbagent.notebook.panel.comms import free_comm
played = json.loads(@PLAYED@)
heard, seq = [], 0

def take(message):
    told = message["content"]["data"]
    heard.append(told)
    if told["kind"] == "hello" and told["version"] < played["least"]:
        comm.send(played["mismatch"])
    elif told["kind"] == "hello" and told["least"] > played["version"]:
        comm.send({**played["mismatch"], "line": played["older"]})
    elif told["kind"] == "hello":
        comm.send({"kind": "snapshot", "version": 1, "seq": seq, "parts": played["parts"]})
    elif told["kind"] == "command":
        result = played["pages"][told["of"]] if told["name"] == "page" else played["results"].get(told["name"])
        line = "" if told["name"] in ("page", "cells") else f"did {told['name']}"  # as a kernel: a page says nothing
        comm.send({"kind": "reply", "id": told["id"], "status": "ok", "line": line, "result": result})

def delta(**parts):
    global seq
    seq += 1
    comm.send({"kind": "delta", "seq": seq, "parts": parts})

comm = free_comm(create_comm(target_name="nbagent", data={
    "kind": "welcome", "version": played["version"], "least": played["least"], "package": "9.9.9"}))
comm.on_msg(take)
"""
