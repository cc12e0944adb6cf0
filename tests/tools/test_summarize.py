"""Summaries of values: bounded, without secrets, without harm."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nbagent.tools.summarize import identity_of, is_secret_name, mask_secrets, outline, shape_of, summarize, type_name


def text(value: object, name: str = "x", **options: Any) -> str:
    return summarize(name, value, **options).text


@pytest.mark.parametrize(
    "name",
    [
        "API_KEY",
        "openai_api_key",
        "apiKey",
        "apikey",
        "TOKEN",
        "accessToken",
        "db_password",
        "SECRET",
        "key",
        "aws_secret_access_key",
        "DB_PWD",
    ],
)
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)
    found = summarize(name, "hunter2-hunter2")
    assert "hunter2" not in found.text
    assert found.shape == ""


@pytest.mark.parametrize(
    "name", ["monkey", "tokenizer", "n_tokens", "max_tokens", "tokens", "authors", "keyboard", "df"]
)
def test_ordinary_names(name: str) -> None:
    assert not is_secret_name(name)


def test_keys_in_values_are_masked() -> None:
    key = "sk-ant-" + "a1B2" * 8
    for value in (
        key,
        [key],
        {"x": {"y": key}},
        {"password": "hunter2"},
        {"a": {"api_key": "hunter2"}},
        "postgres://me:hunter2@host/db",
    ):
        found = text(value)
        assert key not in found
        assert "hunter2" not in found
        assert "[masked]" in found
    assert mask_secrets("nothing here") == "nothing here"


def test_a_frame_has_columns_types_nulls_and_a_sample() -> None:
    frame = pd.DataFrame({"a": [1.0, None, 3.0], "name": list("xyz"), "password": ["p1", "p2", "p3"]})
    found = summarize("df", frame)
    assert (found.type_name, found.shape) == ("pandas.DataFrame", "(3, 3)")
    assert "a: float64, 1 null" in found.text
    assert "first 3 rows" in found.text
    assert "p1" not in found.text


def test_wide_and_long_frames_are_cut() -> None:
    found = text(pd.DataFrame(np.zeros((100, 200))))
    assert len(found) <= 2_000
    assert "[cut]" in found
    assert "150 more columns" in text(pd.DataFrame(np.zeros((2, 200))), limit_chars=20_000)
    assert len(text(pd.DataFrame(np.zeros((100, 200))), full=True)) <= 8_000


def test_frames_with_odd_columns() -> None:
    frame = pd.DataFrame(np.zeros((2, 3)), columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 1), ("b", 2)]))
    assert "DataFrame, 2 rows x 3 columns" in text(frame)
    assert "0 rows" in text(pd.DataFrame())


def test_series_and_arrays() -> None:
    assert "3 values, dtype int64" in text(pd.Series([1, 2, 3], name="n"))
    found = summarize("a", np.arange(6).reshape(2, 3))
    assert (found.type_name, found.shape) == ("numpy.ndarray", "(2, 3)")
    assert "min 0, max 5, mean 2.5" in found.text
    assert "shape (0,)" in text(np.array([]))
    assert "dtype object" in text(np.array([object()]))
    assert "dtype" in text(np.zeros(2, dtype=[("a", int)]))
    assert "shape ()" in text(np.array(3))


def test_containers_are_sampled() -> None:
    assert shape_of([1, 2]) == "len 2"
    assert "list of length 100000, of int" in text(list(range(100_000)))
    assert "more" in text({i: i for i in range(1000)})
    assert "'df': pandas.DataFrame (0, 0)" in text(OrderedDict(df=pd.DataFrame()))
    assert len(text("x" * 10_000_000)) < 1_000
    loop: list[Any] = []
    loop.append(loop)
    assert "list of length 1" in text(loop)


def test_definitions_show_signature_and_first_line() -> None:
    def load(path: str, *, n: int = 3) -> int:
        """Load it.

        More.
        """
        return n

    found = text(load)
    assert "load(path: 'str', *, n: 'int' = 3) -> 'int'" in found
    assert found.endswith("\nLoad it.")
    assert "class" in text(OrderedDict)
    assert "function len" in text(len)


class Hostile:
    touched = 0

    def __getattr__(self, name: str) -> Any:
        type(self).touched += 1
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("no")

    @property
    def shape(self) -> Any:
        type(self).touched += 1
        raise RuntimeError("no")

    def __len__(self) -> int:
        type(self).touched += 1
        return 1


class Plain:
    def __init__(self) -> None:
        self.rows = [1]


class Long:
    def __repr__(self) -> str:
        return "y" * 1_000_000


def test_unknown_objects_are_neither_touched_nor_trusted() -> None:
    assert "Hostile" in text(Hostile())
    assert outline("h", Hostile()).shape == ""
    assert Hostile.touched == 0
    assert len(text(Long())) < 1_000
    assert text(Plain()) == f"{type_name(Plain())} object with rows: list"
    assert "Hostile" in text([Hostile()])


def test_an_outline_holds_no_values() -> None:
    found = outline("x", "private text")
    assert (found.text, found.shape, found.type_name) == ("", "len 12", "str")


def test_identity_tells_rebound_and_changed_from_unchanged() -> None:
    frame, items, table, array = pd.DataFrame({"a": [1]}), [1], {"a": 1}, np.zeros(3)
    before = [identity_of(v) for v in (frame, items, table, array)]
    assert [identity_of(v) for v in (frame, items, table, array)] == before
    frame["b"] = 2
    items[0] = 2
    table["b"] = 2
    array[1] = 5
    assert all(identity_of(v) != b for v, b in zip((frame, items, table, array), before, strict=True))
    assert identity_of("ab" * 10) == identity_of("".join(["ab"] * 10))
    assert identity_of(1) != identity_of(2)
    assert identity_of(True) != identity_of(1)
