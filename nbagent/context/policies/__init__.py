"""The policies by name, in the order they are shown."""

from __future__ import annotations

from collections.abc import Mapping

from nbagent.context.policies import (
    claude_code,
    codex,
    createrole,
    gemini_cli,
    manus,
    nbagent,
    off,
    openclaw,
    opencode,
    pi,
)
from nbagent.context.policy import PolicyKind

BUILT_IN: Mapping[str, PolicyKind] = {
    m.KIND.name: m.KIND
    for m in (nbagent, openclaw, claude_code, codex, gemini_cli, opencode, pi, manus, createrole, off)
}
