"""The command `nbagent`: what may be typed, and which function answers it.

Exit codes: 0 as asked, 1 something was found or failed, 2 it could not be done as typed. Every
error is one line on stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from nbagent import __version__
from nbagent.core.errors import UsageProblem, UserError, one_line
from nbagent.store.settings_defaults import MODES


class CommandParser(argparse.ArgumentParser):
    """An argument parser whose faults are one readable line."""

    def error(self, message: str) -> NoReturn:
        """Raise the fault with what to do."""
        raise UsageProblem(f"{message}; '{self.prog} --help' shows what there is")


def command_parser() -> CommandParser:
    """Return the parser of the whole command line."""
    parser = CommandParser(prog="nbagent", description="A Jupyter notebook as an agent's session.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"nbagent {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=CommandParser)

    demo = commands.add_parser("demo", help="copy the tutorials and open the first in JupyterLab; needs no key")
    demo.add_argument("--check", action="store_true", help="run it here, from its recording, and print the answers")
    demo.add_argument("--folder", type=Path, default=Path("nbagent-demo"), metavar="DIR", help="where (nbagent-demo)")
    demo.add_argument("--no-browser", action="store_true", help="start JupyterLab without opening a browser")

    doctor = commands.add_parser("doctor", help="what is installed and set, and what is wrong")
    doctor.add_argument("--json", action="store_true", help="as JSON")

    verify = commands.add_parser("verify", help="check a journal's hashes and artifacts")
    redact = commands.add_parser("redact", help="replace a text in a journal and its artifacts")
    export = commands.add_parser("export", help="write a conversation as .md, .html or .json")
    for part in (verify, redact, export):
        part.add_argument("journal", type=Path, metavar="JOURNAL", help="a journal.jsonl, or the folder of a session")
    redact.add_argument("text", metavar="TEXT", help="what to replace; - reads it from standard input")
    export.add_argument("file", type=Path, metavar="FILE", help="the file to write; its ending chooses the form")
    export.add_argument("--turn", metavar="TURN", help="the conversation up to this turn, on whatever branch it is")

    recording = commands.add_parser("import", help="turn a recorded session of another agent into sessions")
    recording.add_argument("file", type=Path, metavar="FILE", help="a transcript; its format is told by its content")
    recording.add_argument("--folder", type=Path, default=Path(), metavar="DIR", help="where (this folder)")

    sweep = commands.add_parser("sweep", help="policies at several thresholds on recorded sessions: cost against loss")
    where = "a journal, a folder with sessions, or a recording that 'nbagent import' reads"
    sweep.add_argument("places", type=Path, nargs="+", metavar="SESSION", help=where)
    sweep.add_argument("--policies", default="nbagent,off", metavar="A,B", help="NAME or NAME@seed (nbagent,off)")
    shares = "own,30,45,60,75,90"
    sweep.add_argument("--thresholds", default=shares, metavar="N,N", help=f"percents of the window ({shares})")
    sweep.add_argument("--window", default="", metavar="TOKENS", help="the window (that of each session's model)")
    sweep.add_argument("--csv", type=Path, metavar="FILE", help="write a row for each session, policy and threshold")
    sweep.add_argument("--json", action="store_true", help="print those rows as JSON")

    _add_map(commands.add_parser("map", help="one prompt over many inputs: files, lines, or rows of a table"))

    folders = (
        ("trust", "let the settings and recordings of a project take effect"),
        ("untrust", "take that back"),
        ("sessions", "the sessions kept in a folder"),
    )
    for name, what in folders:
        part = commands.add_parser(name, help=what)
        part.add_argument("folder", type=Path, nargs="?", default=Path(), metavar="DIR", help="the folder (this one)")
    return parser


def _add_map(part: argparse.ArgumentParser) -> None:
    part.add_argument("prompt", metavar="PROMPT", help="what is asked of each; {input} or {column} is filled in")
    part.add_argument("places", type=Path, nargs="+", metavar="INPUT", help="files; - is standard input")
    kinds = "what an input is: a file (attached), a line, or a row of .csv, .tsv or JSON lines (file)"
    part.add_argument("--each", choices=("file", "line", "row"), default="file", help=kinds)
    goes_on = "write the answers there as JSON lines; the same command again goes on"
    part.add_argument("--out", type=Path, metavar="FILE", help=goes_on)
    part.add_argument("--json", action="store_true", help="print the answers as JSON lines")
    part.add_argument("--dry-run", action="store_true", help="show what would be asked; costs nothing")
    part.add_argument("--jobs", metavar="N", help="how many at a time (4)")
    part.add_argument("--max-cost", metavar="USD", help="begin nothing more when all have cost this much")
    part.add_argument("--max-steps", metavar="N", help="model calls for each input")
    part.add_argument("-m", "--model", metavar="NAME", help="the model (that of the settings)")
    part.add_argument("--policy", metavar="NAME", help="context policy")
    part.add_argument("--mode", choices=MODES, help="permissions; nobody can be asked here")
    part.add_argument("--tools", metavar="A,B", help="narrow the tools; those of a kernel are not there")
    part.add_argument("--skill", metavar="NAME", help="use this skill for each")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = run(command_parser().parse_args(arguments))
        sys.stdout.flush()
        return code
    except UserError as error:
        return _failed(str(error), 2)
    except BrokenPipeError:
        # Who read our output has gone; nothing more may be written, not even by Python at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _failed(f"{error.filename or 'the system'}: {error.strerror or error}; check the path", 1)
    except KeyboardInterrupt:
        return _failed("stopped", 130)


def run(parsed: argparse.Namespace) -> int:
    """Run a parsed command and return the exit code.

    Raises:
        UserError: it cannot be done as typed.
    """
    from nbagent import cli_journal as journal

    match parsed.command:
        case "demo":
            from nbagent.cli_demo import demo

            return demo(parsed.folder, check=parsed.check, browser=not parsed.no_browser)
        case "doctor":
            from nbagent.cli_doctor import doctor

            return doctor(Path.cwd(), os.environ, as_json=parsed.json)
        case "verify":
            return journal.verify_journal(parsed.journal)
        case "redact":
            text = sys.stdin.read().rstrip("\r\n") if parsed.text == "-" else parsed.text
            return journal.redact_journal(parsed.journal, text)
        case "export":
            return journal.export_journal(parsed.journal, parsed.file, turn=parsed.turn)
        case "import":
            return journal.import_recording(parsed.file, parsed.folder)
        case "sweep":
            from nbagent.cli_sweep import run_sweep

            return run_sweep(
                parsed.places, policies=parsed.policies, thresholds=parsed.thresholds, window=parsed.window,
                csv_file=parsed.csv, as_json=parsed.json,
            )  # fmt: skip
        case "map":
            from nbagent.cli_map import order_of, run_map

            return run_map(order_of(parsed), Path.cwd(), os.environ)
        case "trust" | "untrust":
            return journal.set_trust(parsed.folder, os.environ, wanted=parsed.command == "trust")
        case "sessions":
            return journal.list_sessions(parsed.folder)
        case _:
            command_parser().print_help()
            return 0


def _failed(message: str, code: int) -> int:
    with contextlib.suppress(OSError):
        print(f"nbagent: {one_line(message)}", file=sys.stderr)
    return code
