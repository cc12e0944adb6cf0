"""What in a piece of code or a command deserves a question before it runs, in mode `auto`. Pure.

This finds what usually is dangerous: deleting, other processes, the network, credentials. It is a
reason to ask, not a sandbox: code that hides its purpose passes.
"""

from __future__ import annotations

import ast
import re

_MODULES = {
    "subprocess": "starts another process", "socket": "uses the network", "requests": "uses the network",
    "httpx": "uses the network", "httpx2": "uses the network", "aiohttp": "uses the network",
    "urllib": "uses the network", "urllib3": "uses the network", "http": "uses the network",
    "ftplib": "uses the network", "smtplib": "sends mail", "paramiko": "uses the network",
    "boto3": "uses the network", "ctypes": "calls native code", "pty": "starts another process",
    "multiprocessing": "starts another process", "keyring": "reads credentials", "shutil": "",
}  # fmt: skip

_CALLS = {
    "os.remove": "deletes files", "os.unlink": "deletes files", "os.rmdir": "deletes folders",
    "os.removedirs": "deletes folders", "shutil.rmtree": "deletes folders", "shutil.move": "moves files",
    "os.rename": "moves files", "os.replace": "moves files", "os.system": "runs a shell command",
    "os.popen": "runs a shell command", "os.kill": "ends processes", "os.fork": "starts another process",
    "eval": "runs code from text", "exec": "runs code from text", "__import__": "imports by name",
    "get_ipython": "drives the shell", "os.truncate": "empties files", "os.chmod": "changes permissions",
    "pip.main": "installs packages",
}  # fmt: skip

_MAGICS = ("%%bash", "%%sh", "%%script", "%%writefile", "%sx", "%system", "%run", "%pip", "%conda", "%%agent")

_METHODS = {
    "unlink": "deletes files", "rmdir": "deletes folders", "rmtree": "deletes folders", "read_html": "uses the network",
    "urlopen": "uses the network", "urlretrieve": "uses the network", "drop_database": "deletes data",
    "run_cell_magic": "drives the shell", "run_line_magic": "drives the shell", "system": "runs a shell command",
}  # fmt: skip

_SECRET_TEXT = re.compile(r"\.ssh\b|\.aws\b|\.netrc\b|\.pgpass\b|id_rsa|credentials|_?api_?key|password|secret", re.I)
_URL = re.compile(r"\b(?:https?|ftp|s3|gs|ssh)://", re.I)

_COMMANDS = re.compile(
    r"(?:^|[;&|`(\n]|\bsudo\s+|\bxargs\s+)\s*"
    r"(rm|rmdir|shred|dd|mkfs\S*|mv|chmod|chown|kill|pkill|killall|sudo|su|curl|wget|ssh|scp|sftp|rsync|nc|telnet|ftp"
    r"|pip|pip3|conda|npm|apt|apt-get|brew|docker|kubectl|systemctl|crontab|eval|python\d?\s+-c|truncate|env|printenv)\b",
    re.I,
)
_GIT = re.compile(r"\bgit\s+(push|reset|clean|checkout|rebase|gc|filter-\w+|branch\s+-D|stash\s+(?:drop|clear))", re.I)
_FIND_DELETE = re.compile(r"\bfind\b.*\s-(?:delete|exec)\b")
_OVERWRITE = re.compile(r"(?<![>&0-9])>(?![>&])\s*[^\s&]")


def danger_in_python(code: str) -> tuple[str, ...]:
    """Return the reasons to ask before `code` runs, each once, in order of place; empty when nothing was found.

    Code that cannot be parsed (magics, `!commands`) is looked at line by line.

    >>> danger_in_python("import shutil; shutil.rmtree(p)")
    ('deletes folders (shutil.rmtree)',)
    >>> danger_in_python("df.describe()")
    ()
    """
    reasons: list[str] = []
    lines = code.splitlines()
    plain = "\n".join("" if line.lstrip().startswith(("!", "%")) else line for line in lines)
    for line in lines:
        stripped = line.lstrip()
        if stripped.startswith("!"):
            reasons.extend(danger_in_command(stripped[1:]) or ("runs a shell command",))
        elif stripped.startswith(_MAGICS):
            reasons.append(f"uses the magic {stripped.split()[0]}")
    try:
        tree = ast.parse(plain)
    except (SyntaxError, ValueError, RecursionError):
        return _once([*reasons, *([] if reasons else _by_words(code))])
    for node in ast.walk(tree):
        reasons.extend(_of_node(node))
    return _once(reasons)


def danger_in_command(command: str) -> tuple[str, ...]:
    """Return the reasons to ask before a shell command runs."""
    reasons = [f"runs {m.group(1).split()[0]}" for m in _COMMANDS.finditer(command)]
    reasons += [f"runs git {m.group(1).split()[0]}" for m in _GIT.finditer(command)]
    if _FIND_DELETE.search(command):
        reasons.append("deletes or runs what find finds")
    if _OVERWRITE.search(command):
        reasons.append("overwrites a file")
    if _URL.search(command):
        reasons.append("uses the network")
    if _SECRET_TEXT.search(command):
        reasons.append("touches what looks like credentials")
    return _once(reasons)


def _of_node(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [f"{_MODULES[r]} ({r})" for a in node.names if _MODULES.get(r := a.name.split(".")[0])]
    if isinstance(node, ast.ImportFrom):
        root = (node.module or "").split(".")[0]
        named = [f"{root}.{a.name}" for a in node.names]
        return [f"{_CALLS[n]} ({n})" for n in named if n in _CALLS] + (
            [f"{_MODULES[root]} ({root})"] if _MODULES.get(root) else []
        )
    if isinstance(node, ast.Call):
        return _of_call(node)
    if isinstance(node, ast.Attribute) and _dotted(node) == "os.environ":
        return ["reads the environment (os.environ)"]
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 500:
        found = ["uses the network (an address)"] if _URL.search(node.value) else []
        return found + (["touches what looks like credentials"] if _SECRET_TEXT.search(node.value) else [])
    return []


def _of_call(node: ast.Call) -> list[str]:
    name = _dotted(node.func)
    if name in _CALLS:
        return [f"{_CALLS[name]} ({name})"]
    last = name.rsplit(".", 1)[-1]
    if "." in name and last in _METHODS:
        return [f"{_METHODS[last]} (.{last})"]
    if name == "getattr" and len(node.args) > 1 and not isinstance(node.args[1], ast.Constant):
        return ["calls by name (getattr)"]
    return []


def _dotted(node: ast.AST) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(parts))


def _by_words(code: str) -> list[str]:
    found = [f"{why} ({name})" for name, why in _CALLS.items() if "." in name and name in code]
    return found or ["cannot be read as Python"]


def _once(reasons: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(reasons))
