"""The words that options and configuration choose among."""

from __future__ import annotations

PROVIDER, PROMPT = ("off", "clear", "compact", "both"), ("full", "minimal", "none")
MODES, RERUNS = ("ask", "auto", "plan"), ("fork", "reuse", "append")
OBSERVED = ("off", "outline", "full")
