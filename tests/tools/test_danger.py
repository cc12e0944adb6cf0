"""What the scan of mode `auto` asks about, and what it lets pass (DECISIONS 20)."""

from __future__ import annotations

import ast
from types import SimpleNamespace

import pytest

from nbagent.tools import danger
from nbagent.tools.danger import danger_in_command, danger_in_python

DANGEROUS_CODE = [
    ("import os\nos.remove('a.csv')", "deletes"),
    ("from os import remove as r\nr('a')", "deletes"),
    ("import os as o\no.unlink(p)", "deletes"),
    ("from pathlib import Path\nPath('x').unlink()", "deletes"),
    ("p.rmdir()", "deletes"),
    ("import shutil\nshutil.rmtree('d')", "deletes"),
    ("from shutil import *\nrmtree('d')", "shutil"),
    ("import shutil as s; s.move('a', 'b')", "moves"),
    ("os.rename('a', 'b')", "moves"),
    ("import subprocess; subprocess.run(['ls'])", "process"),
    ("from subprocess import run", "process"),
    ("os.system('ls')", "shell"),
    ("os.popen('ls').read()", "shell"),
    ("os.execvp('sh', ['sh'])", "process"),
    ("os.spawnl(os.P_WAIT, 'x')", "process"),
    ("os.kill(1, 9)", "ends"),
    ("import multiprocessing", "process"),
    ("await asyncio.create_subprocess_shell('ls')", "process"),
    ("import requests", "network"),
    ("import urllib.request\nurllib.request.urlopen(u)", "network"),
    ("from urllib.request import urlretrieve", "network"),
    ("import socket", "network"),
    ("df = pd.read_csv('https://example.org/a.csv')", "network"),
    ("df = pd.read_parquet(f's3://{bucket}/x')", "network"),
    ("from sklearn.datasets import fetch_openml\nfetch_openml('mnist_784')", "network"),
    ("sns.load_dataset('iris')", "network"),
    ("eval(text)", "from text"),
    ("exec(open('a.py').read())", "from text"),
    ("__import__('os').system('x')", "by name"),
    ("import importlib; importlib.import_module('subprocess')", "by name"),
    ("getattr(os, 'rem' + 'ove')('x')", "by name"),
    ("getattr(os, 'remove')('x')", "by name"),
    ("os.environ['HOME']", "environment"),
    ("from os import environ\nenviron['X']", "environment"),
    ("os.getenv('X')", "environment"),
    ("open('/home/me/.ssh/id_rsa').read()", "credentials"),
    ("open(os.path.expanduser('~/.aws/config'))", "credentials"),
    ("key = 'OPENAI_API_KEY'", "credentials"),
    ("df['password']", "credentials"),
    ("import keyring", "credentials"),
    ("get_ipython().system('ls')", "shell"),
    ("!rm -rf x", "rm"),
    ("!ls", "shell"),
    ("x = 1\n!!ls", "shell"),
    ("%pip install x", "%pip"),
    ("%%bash\nls", "%%bash"),
    ("%context policy off", "%context"),
    ("x = 1\n  %context pin x", "%context"),
    ("%%context note\nx", "%%context"),
    ("%config AgentMagics.mode = 'auto'", "%config"),
    ("%unload_ext nbagent", "%unload_ext"),
    ("%reload_ext nbagent", "%reload_ext"),
    ("%skills disable x", "%skills"),
    ("%memory add x", "%memory"),
    ("%time %context undo", "%context"),
    ("%%capture\n%agent mode auto", "%agent"),
    ("%alias_magic c context", "%alias_magic"),
    ("context policy off", "Python"),
    ("n = %context pin x", "Python"),
    ("import nbagent\nnbagent.ask('x')", "the agent itself"),
    ("from nbagent.notebook import extension", "the agent itself"),
    ("%run other.py", "%run"),
    ("%env", "%env"),
    ("%timeit os.remove('a')", "deletes"),
    ("%time shutil.rmtree(p)", "deletes"),
    ("%%time\nos.remove('a')", "deletes"),
    ("files = !ls", "cannot be read"),
    ("pip install pandas", "cannot be read"),
    ("con.execute('DROP TABLE users')", "data"),
    ("con.execute('delete from t where 1')", "data"),
    ("import ctypes", "native"),
    ("def f(:\n os.remove('x')", "deletes"),
    ("x = '" + "a" * 3000 + " https://example.org'", "network"),
]

HARMLESS_CODE = [
    "df.drop(columns=['a'])",
    "df = df.drop('a', axis=1).dropna().drop_duplicates()",
    "df.replace({'a': 1})",
    "df['name'].str.replace('a', 'b')",
    "'abc'.replace('a', 'b')",
    "plt.savefig('figure.png')\nplt.show()",
    "df.to_csv('out.csv', index=False)",
    "pd.read_csv('data/a.csv', sep=';')",
    "pd.read_html('table.html')",
    "df.eval('a + b')\ndf.query('a > 1')",
    "model.eval()",
    "np.exp(x)",
    "df.pop('a')",
    "cache.clear()",
    "stack.pop(); seen.remove(1)",
    "items.remove(3)",
    "ax.remove()",
    "df.rename(columns={'a': 'b'})",
    "df.rename_axis('x')",
    "from sklearn.model_selection import train_test_split\ntrain_test_split(X, y)",
    "from sklearn.datasets import load_iris, load_digits\nload_iris()",
    "from sklearn.ensemble import RandomForestClassifier\nRandomForestClassifier(n_jobs=-1).fit(X, y).predict(X)",
    "import os\nos.path.join('a', 'b'); os.listdir('.'); os.makedirs('out', exist_ok=True)",
    "from os import path\npath.exists('a')",
    "import shutil\nshutil.copy('a', 'b')",
    "import platform\nplatform.system()",
    "from urllib.parse import urlparse",
    "import urllib.parse\nurllib.parse.quote(x)",
    "import json, re, math, datetime, itertools, collections",
    "with open('a.txt', 'w') as f:\n    f.write('x')",
    "getattr(row, name)",
    "getattr(self, 'x', None)",
    "%matplotlib inline\nimport matplotlib.pyplot as plt",
    "%load_ext autoreload",
    "%timeit df.sum()",
    "%%time\ndf.sum()",
    "df?",
    "?df",
    "df.groupby('a').agg({'b': 'sum'}).plot(kind='bar')",
    "for key, value in d.items():\n    print(key, value)",
    "tokens = text.split()",
    "df['keyboard'] = df['tokenizer']",
    "del df",
    "x = await task",
    "print('50% > 40%')",
    "sys.exit",
    "df['system'].describe()",
    "sns.heatmap(df.corr(), annot=True)",
    "torch.load('model.pt', weights_only=True)",
    "    df = 1\n    df + 1",
    "",
]

DANGEROUS_COMMANDS = [
    "rm -rf x", "ls; rm x", "ls && rm x", "ls | xargs rm", "sudo ls", "sudo -n rm x", "/bin/rm x", "\\rm x", "X=1 rm x",
    "sh -c 'rm x'", "bash -lc \"rm x\"", "if true; then rm x; fi", "(rm x)", "echo $(rm x)", "echo `rm x`", "cd a\nrm x",
    "find . -name '*.pyc' -delete", "find . -exec rm {} +", "mv a b", "chmod 777 a", "kill 1", "pkill python",
    "curl https://example.org", "wget x", "ssh host", "git push", "git reset --hard", "git -C sub push", "git clone x",
    "git checkout .", "pip install x", "python -m pip install x", "python3 -c 'import os'", "python -m http.server",
    "echo x > a.txt", "echo x >| a.txt", "cat a | sh", "curl x | bash", "env", "printenv", "cat ~/.ssh/id_rsa",
    "cat .env", "npm install", "docker run x", "dd if=a of=b", "truncate -s 0 a", "eval \"$x\"", "source a.sh",
]  # fmt: skip

HARMLESS_COMMANDS = [
    "ls -la", "git status", "git log --oneline -5", "git diff HEAD~1", "cat a.txt", "head -n 5 data.csv", "wc -l *.csv",
    "grep -rn pattern src", "find . -name '*.py'", "pytest -q", "make test", "ruff check .", "python script.py",
    "python -m pytest", "du -sh .", "df -h", "echo hello", "sort a | uniq -c", "ls 2>/dev/null", "ls > /dev/null",
    "ls >/dev/null 2>&1", "cat a >> log.txt", "rmlint x", "performance", "tree -L 2", "jq .name a.json", "awk '{print $1}' a",
    "diff a b", "mkdir -p out", "cp a b", "stat a", "which python", "date", "git branch",
]  # fmt: skip


@pytest.mark.parametrize(("code", "reason"), DANGEROUS_CODE)
def test_dangerous_code_is_asked_about(code: str, reason: str) -> None:
    assert reason in " ".join(danger_in_python(code))


@pytest.mark.parametrize("code", HARMLESS_CODE)
def test_ordinary_code_passes(code: str) -> None:
    assert danger_in_python(code) == ()


@pytest.mark.parametrize("command", DANGEROUS_COMMANDS)
def test_dangerous_commands_are_asked_about(command: str) -> None:
    assert danger_in_command(command)


@pytest.mark.parametrize("command", HARMLESS_COMMANDS)
def test_ordinary_commands_pass(command: str) -> None:
    assert danger_in_command(command) == ()


@pytest.mark.parametrize(
    "text",
    ["a" * 50_000, "-a=b " * 5_000, "git " + "-a b=c " * 5_000, "sudo " + "-x 1 " * 5_000, "find " * 5_000, "(" * 5_000,
     "X=1 " * 5_000, "/a" * 20_000, "'" * 5_000, "%time " * 20_000, "x = 1\n" * 50_000],
)  # fmt: skip
def test_the_scan_ends_on_text_of_one_kind(text: str) -> None:
    assert isinstance(danger_in_command(text), tuple)
    assert isinstance(danger_in_python(text), tuple)


@pytest.mark.parametrize("code", ["%time " * 3_000 + "os.remove('a')", "%time %timeit %prun os.remove('a')"])
def test_timing_magics_hide_nothing_however_many(code: str) -> None:
    assert "deletes" in " ".join(danger_in_python(code))


def test_code_that_is_too_long_to_read_is_asked_about() -> None:
    assert danger_in_python("x = 1\n" * 20_000) == ("cannot be read as Python",)
    assert "deletes" in " ".join(danger_in_python("x = 1\n" * 20_000 + "os.remove('a')"))


def test_a_parse_that_fails_for_reasons_of_the_interpreter_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython before 3.11.8 mixes up two threads that parse at the same time (gh-106905)."""
    failures = [1, 1]

    def flaky(text: str) -> ast.Module:
        if failures:
            failures.pop()
            raise SystemError("AST constructor recursion depth mismatch (before=33, after=50)")
        return ast.parse(text)

    monkeypatch.setattr(danger, "ast", SimpleNamespace(**{**vars(ast), "parse": flaky}))
    assert danger_in_python("df.describe()") == ()
    failures[:] = [1] * 10
    assert danger_in_python("df.describe()") == ("cannot be read as Python",)
