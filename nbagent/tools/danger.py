"""What in a piece of code or a command deserves a question before it runs, in mode `auto`. Pure.

This finds what usually is dangerous: deleting, other processes, the network, credentials. It is a
reason to ask, not a sandbox: code that hides its purpose passes.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable

_NETWORK, _PROCESS = "uses the network", "starts another process"
_MODULES = {
    "subprocess": _PROCESS, "pty": _PROCESS, "multiprocessing": _PROCESS, "pexpect": _PROCESS, "sh": _PROCESS,
    "ctypes": "calls native code", "cffi": "calls native code", "keyring": "reads credentials",
    "getpass": "reads credentials", "smtplib": "sends mail", "nbagent": "drives the agent itself",
    **dict.fromkeys(
        ("socket", "requests", "httpx", "httpx2", "aiohttp", "urllib", "urllib3", "http", "ftplib", "telnetlib",
         "imaplib", "poplib", "xmlrpc", "paramiko", "boto3", "websocket", "websockets", "pycurl", "wget", "gdown",
         "webbrowser", "yfinance", "huggingface_hub", "kagglehub", "anthropic", "openai"),
        _NETWORK,
    ),
}  # fmt: skip
_HARMLESS = frozenset({"urllib.parse", "http.HTTPStatus", "socket.gethostname", "getpass.getuser"})
_STARS = frozenset({"os", "shutil", "builtins"})

_CALLS = {
    "os.remove": "deletes files", "os.unlink": "deletes files", "os.rmdir": "deletes folders",
    "os.removedirs": "deletes folders", "shutil.rmtree": "deletes folders", "shutil.move": "moves files",
    "os.rename": "moves files", "os.renames": "moves files", "os.replace": "moves files",
    "os.system": "runs a shell command", "os.popen": "runs a shell command", "os.startfile": _PROCESS,
    "os.kill": "ends processes", "os.killpg": "ends processes", "os.fork": _PROCESS, "os.truncate": "empties files",
    "os.chmod": "changes permissions", "os.chown": "changes permissions", "os.getenv": "reads the environment",
    "os._exit": "ends the kernel", "eval": "runs code from text", "exec": "runs code from text",
    "builtins.eval": "runs code from text", "builtins.exec": "runs code from text",
    "__import__": "imports by name", "importlib.import_module": "imports by name", "get_ipython": "drives the shell",
    "pip.main": "installs packages", "asyncio.create_subprocess_shell": _PROCESS,
    "asyncio.create_subprocess_exec": _PROCESS, "runpy.run_path": "runs another program",
}  # fmt: skip
_FAMILIES = re.compile(r"os\.(?:exec[lv]\w*|spawn\w+|posix_spawnp?)$")
_NAME_LOOKUPS = frozenset({"os", "shutil", "builtins", "sys", "subprocess", "importlib", "__builtins__"})

# Method or function names that mean one thing, whatever they are called on.
_METHODS = {
    "unlink": "deletes files", "rmdir": "deletes folders", "rmtree": "deletes folders", "urlopen": _NETWORK,
    "urlretrieve": _NETWORK, "drop_database": "deletes data", "run_cell_magic": "drives the shell",
    "run_line_magic": "drives the shell", "run_cell": "drives the shell", "create_subprocess_shell": _PROCESS,
    "create_subprocess_exec": _PROCESS, "fetch_openml": _NETWORK, "fetch_california_housing": _NETWORK,
    "fetch_20newsgroups": _NETWORK, "fetch_covtype": _NETWORK, "load_dataset": _NETWORK,
}  # fmt: skip

_MAGICS = frozenset(
    {
        "%%bash", "%%sh", "%%script", "%%writefile", "%%file", "%%python", "%%python3", "%%perl", "%%ruby", "%%cmd",
        "%%system", "%%sx", "%%agent", "%agent", "%sx", "%system", "%run", "%pip", "%conda", "%mamba", "%uv", "%env",
        "%set_env", "%rm", "%rmdir", "%mv", "%cp", "%load", "%reset", "%edit", "%%js", "%%javascript", "%%html",
        # The agent's own permissions, policy, window, notes and skills; and what would run these under another name.
        "%context", "%%context", "%config", "%skills", "%memory", "%reload_ext", "%unload_ext", "%alias_magic",
        "%rerun", "%recall", "%rep", "%macro",
    }
)  # fmt: skip
_TIMING = frozenset({"%time", "%timeit", "%prun", "%lprun", "%memit", "%mprun", "%%timeit", "%%prun"})
_TIMINGS = re.compile(r"(?:%%?(?:time|timeit|prun|lprun|memit|mprun)(?:\s+|$))+")

_SECRET_TEXT = re.compile(
    r"(?:^|[/\\~\s\"'])\.(?:ssh|aws|netrc|pgpass|gnupg|kube|docker|env)\b|id_(?:rsa|ed25519|ecdsa)\b|credentials"
    r"|_?api_?key|passw(?:or)?d|secret|/etc/shadow|_TOKEN\b",
    re.I,
)
_URL = re.compile(r"\b(?:https?|ftp|sftp|s3|gs|hf|ssh)://", re.I)
_SQL = re.compile(r"\b(?:drop\s+(?:table|database|schema|view)|delete\s+from|truncate\s+table)\b", re.I)
_SCANNED_CHARS = 20_000
_PARSED_CHARS = 100_000  # longer code is looked at word by word only
_PARSE_TRIES = 3

# Where a command may begin, with what may stand before it.
_BEGIN = (
    r"(?:^|[;&|`({\n]|\$\(|-\w*c\s+[\"']|\b(?:sudo|xargs|then|do|else|exec|command|time|nohup|nice|timeout|env)\s+"
    r"(?:(?:-\S+|\d\S*)\s+)*)\s*(?:\w+=\S*\s+)*\\?[\"']?(?:[\w.~-]*/)*"
)
_COMMANDS = re.compile(
    _BEGIN
    + r"(rm|rmdir|unlink|shred|dd|mkfs\S*|mv|chmod|chown|kill|pkill|killall|sudo|su|doas|curl|wget|ssh|scp|sftp|rsync"
    r"|nc|ncat|telnet|ftp|pip|pip3|pipx|uv|conda|mamba|npm|npx|yarn|pnpm|apt|apt-get|brew|gem|docker|podman|kubectl"
    r"|systemctl|crontab|eval|source|truncate|env|printenv|aws|gcloud|az|gh|shutdown|reboot)(?=$|[\s;&|)\"'`<>])",
    re.I,
)
_INLINE = re.compile(_BEGIN + r"((?:python|perl|ruby|node)\S*)\s+(?:-\S+\s+)*-(?:c|e)\b", re.I)
_MODULE = re.compile(r"-m\s+(pip|http\.server|ensurepip)\b")
_GIT = re.compile(
    r"\bgit\s+(?:(?:-[Cc]\s+[^-\s]\S*|-\S+)\s+)*(push|pull|fetch|clone|reset|clean|checkout|restore|rebase|gc|filter-\w+|rm"
    r"|branch\s+-D|stash\s+(?:drop|clear))\b",
    re.I,
)
_FIND_DELETE = re.compile(r"\bfind\b.*\s-(?:delete|exec|execdir|ok)\b", re.DOTALL)
_OVERWRITE = re.compile(r"(?<![>&\d=-])>\|?(?![>&])\s*(?!/dev/(?:null|stdout|stderr)\b)[^\s&>]")
_FETCHED_SHELL = re.compile(r"\|\s*(?:sudo\s+)?(?:ba|z|da)?sh\b")


def danger_in_python(code: str) -> tuple[str, ...]:
    """Return the reasons to ask before `code` runs, each once, in order of place; empty when nothing was found.

    Lines with magics and `!commands` are looked at one by one; code that cannot be read is a reason.

    >>> danger_in_python("import shutil; shutil.rmtree(p)")
    ('deletes folders (shutil.rmtree)',)
    >>> danger_in_python("df.describe()")
    ()
    """
    reasons: list[str] = []
    plain: list[str] = []
    for line in textwrap.dedent(code).splitlines():
        found, rest = _of_line(line)
        reasons.extend(found)
        plain.append(rest)
    tree = _parsed("\n".join(plain))
    if tree is None:
        return _once([*reasons, *([] if reasons else _by_words(code))])
    aliases = _aliases(tree)
    for node in ast.walk(tree):
        reasons.extend(_of_node(node, aliases))
    return _once(reasons)


def _parsed(code: str) -> ast.Module | None:
    for _ in range(_PARSE_TRIES if len(code) <= _PARSED_CHARS else 0):
        try:
            return ast.parse(code)
        except SystemError:  # before CPython 3.11.8 two threads that parse at once disturb each other (gh-106905)
            continue
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    return None


def danger_in_command(command: str) -> tuple[str, ...]:
    """Return the reasons to ask before a shell command runs."""
    text = command.replace("\\\n", " ")
    reasons = [f"runs {m.group(1).split()[0]}" for m in _COMMANDS.finditer(text)]
    reasons += [f"runs code with {m.group(1)}" for m in _INLINE.finditer(text)]
    reasons += [f"runs {m.group(1)}" for m in _MODULE.finditer(text)]
    reasons += [f"runs git {m.group(1).split()[0]}" for m in _GIT.finditer(text)]
    if _FIND_DELETE.search(text):
        reasons.append("deletes or runs what find finds")
    if _FETCHED_SHELL.search(text):
        reasons.append("runs what another command prints")
    if _OVERWRITE.search(text):
        reasons.append("overwrites a file")
    return _once([*reasons, *_of_text(text)])


def _of_line(line: str) -> tuple[list[str], str]:
    """Return the reasons in a line of IPython's own syntax, and what is left of the line to read as Python."""
    stripped = line.lstrip()
    if stripped.startswith("!"):
        return list(danger_in_command(stripped.lstrip("!"))) or ["runs a shell command"], ""
    if stripped.startswith("%"):
        word = stripped.partition(" ")[0]
        if word in _MAGICS:
            return [f"uses the magic {word}"], ""
        timed = _TIMINGS.sub("", stripped, count=1)
        return (list(danger_in_python(timed)) if word in _TIMING and timed else []), ""
    if re.match(r"\??[\w.]+\?{0,2}$", stripped) and "?" in stripped:
        return [], ""
    return [], line


def _aliases(tree: ast.AST) -> dict[str, str]:
    """Return what names stand for: `import os as o`, `from os import remove as r`."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update({a.asname: a.name for a in node.names if a.asname})
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update({a.asname or a.name: f"{node.module}.{a.name}" for a in node.names})
    return found


def _of_node(node: ast.AST, aliases: dict[str, str]) -> list[str]:
    if isinstance(node, ast.Import):
        return [reason for a in node.names for reason in _of_import(a.name)]
    if isinstance(node, ast.ImportFrom):
        return [reason for a in node.names for reason in _of_import(f"{node.module or ''}.{a.name}")]
    if isinstance(node, ast.Call):
        return _of_call(node, aliases)
    if isinstance(node, ast.Attribute | ast.Name) and _dotted(node, aliases) == "os.environ":
        return ["reads the environment (os.environ)"]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _of_text(node.value[:_SCANNED_CHARS])
    return []


def _of_import(name: str) -> list[str]:
    root, _, rest = name.partition(".")
    if name in _HARMLESS or any(name.startswith(f"{h}.") for h in _HARMLESS):
        return []
    if name in _CALLS:
        return [f"{_CALLS[name]} ({name})"]
    if rest == "*" and root in _STARS:
        return [f"takes all names of {root}"]
    return [f"{_MODULES[root]} ({root})"] if root in _MODULES else []


def _of_text(text: str) -> list[str]:
    found = ["uses the network (an address)"] if _URL.search(text) else []
    found += ["deletes data (SQL)"] if _SQL.search(text) else []
    return found + (["touches what looks like credentials"] if _SECRET_TEXT.search(text) else [])


def _of_call(node: ast.Call, aliases: dict[str, str]) -> list[str]:
    name = _dotted(node.func, aliases)
    if name in _CALLS:
        return [f"{_CALLS[name]} ({name})"]
    if _FAMILIES.match(name):
        return [f"{_PROCESS} ({name})"]
    last = name.rsplit(".", 1)[-1]
    if last in _METHODS:
        return [f"{_METHODS[last]} ({'.' if '.' in name else ''}{last})"]
    if name in ("getattr", "vars") and node.args and _dotted(node.args[0], aliases) in _NAME_LOOKUPS:
        return [f"calls by name ({name})"]
    return []


def _dotted(node: ast.AST, aliases: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(aliases.get(node.id, node.id) if isinstance(node, ast.Name) else "")
    return ".".join(reversed(parts))


def _by_words(code: str) -> list[str]:
    found = [f"{why} ({name})" for name, why in _CALLS.items() if "." in name and name in code]
    return found or ["cannot be read as Python"]


def danger_in_writing(paths: Iterable[str], text: str) -> tuple[str, ...]:
    """Return why writing `text` to one file deserves a question; `paths` are the forms of its path.

    >>> danger_in_writing(["reports/a.md"], "hello"), danger_in_writing([".git/hooks/pre-commit"], "#!/bin/sh")
    ((), ('changes what git keeps or runs (.git)',))
    """
    found: list[str] = []
    for path in paths:
        parts = path.replace("\\", "/").lower().rstrip("/").split("/")
        if ".git" in parts:
            found.append("changes what git keeps or runs (.git)")
        if parts[-1] == "nbagent.toml" or (parts[-1] == "pyproject.toml" and "tool.nbagent" in text):
            found.append("changes the settings of nbagent, its permissions too")
    return _once(found)


def _once(reasons: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(reasons))
