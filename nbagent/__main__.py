"""`python -m nbagent`, the same as the command `nbagent`."""

from nbagent.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
