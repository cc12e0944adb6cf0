"""What the settings are where nobody set any, and the names of the variables that set them. Imports nothing. PURE."""

from __future__ import annotations

MODES = ("plan", "ask", "auto")  # from narrow to wide
URL = r"https?://[^\s/]"  # how one begins

MODEL, POLICY, WINDOW_TOKENS, HOME = "claude-sonnet-5-5", "nbagent", 200_000, "~/.nbagent"

PREFIX = "NBAGENT_"
# Switches of the test suite and of set-up; the prefix alone does not make a variable a setting.
NOT_SETTINGS = (
    "NBAGENT_TEST", "NBAGENT_CHROMIUM", "NBAGENT_NOTEBOOK_CORPUS", "NBAGENT_HYPOTHESIS", "NBAGENT_MATRIX",
    "NBAGENT_OFFLINE",
)  # fmt: skip
# Variables of the providers' own libraries that mean one of our keys.
FOREIGN = {"ANTHROPIC_BASE_URL": "base_url", "OPENAI_BASE_URL": "openai.base_url"}
