"""Emphasis in text without blanks between words; all other text is read as CommonMark reads it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from nbagent.notebook.emphasis import EmphasisBesideWideLetters
from nbagent.notebook.markdown import markdown_html


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("这是**“重点”**的，**注意：**请看", "这是<strong>“重点”</strong>的，<strong>注意：</strong>请看"),
        ("他说**你好。**然后*（斜体）*文字", "他说<strong>你好。</strong>然后<em>（斜体）</em>文字"),
        ("列**`城市`**缺失，~~删除。~~后面", "列<strong><code>城市</code></strong>缺失，<s>删除。</s>后面"),
        ("日本語の**「重要」**です", "日本語の<strong>「重要」</strong>です"),
        ("한국어**(중요)**는", "한국어<strong>(중요)</strong>는"),
        ("**结论**：用 snake_case_名 和 2 ** 3", "<strong>结论</strong>：用 snake_case_名 和 2 ** 3"),
        ("** 空格**不行", "** 空格**不行"),
        ("x**(y)**z", "x**(y)**z"),
    ],
)
def test_marks_beside_wide_letters(text: str, html: str) -> None:
    assert markdown_html(text).strip() == f"<p>{html}</p>"


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab *_~`().,é“”\n[]"), max_size=30))
def test_text_without_wide_letters_is_read_as_ever(text: str) -> None:
    plain, ours = MarkdownIt("js-default"), MarkdownIt("js-default")
    ours.inline = EmphasisBesideWideLetters(ours.inline)
    assert ours.render(text) == plain.render(text)


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("中文，。（）「」 *_~`a(b)"), max_size=30))
def test_any_wide_text_is_rendered_and_loses_no_letter(text: str) -> None:
    drawn = markdown_html(text)
    assert drawn.count("中") == text.count("中")
    assert drawn.count("，") == text.count("，")
