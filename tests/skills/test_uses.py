"""The record of uses, and what of the skills comes back after a compaction."""

from __future__ import annotations

from nbagent.core.entries import Entry, UserMessage
from nbagent.core.messages import text_block
from nbagent.core.tokens import estimate_tokens
from nbagent.skills.uses import attach_after_compaction, log_rows, skill_use, skills_in_use, use_counts


def path_of(*bodies):
    return [Entry(id=str(i), parent=str(i - 1) if i else None, at=float(i), body=b) for i, b in enumerate(bodies)]


def use(name, **given):
    return skill_use(name, "model", "the request", **given)


def attached(entries, body="word " * 6_000):
    return attach_after_compaction(skills_in_use(entries), lambda u: body)


def test_the_five_newest_come_back_within_5_000_and_25_000_tokens():
    """claude 40."""
    entries = path_of(*(use(f"s{i}") for i in range(7)))
    body = " ".join(f"word{i}" for i in range(6_000))
    text = attached(entries, body)
    assert [n for n in range(7) if f'name="s{n}"' in text] == [2, 3, 4, 5, 6]
    assert text.index('"s6"') < text.index('"s5"')
    parts = text.split("\n\n<skill_reference")[1:]
    assert all(4_500 < estimate_tokens("<skill_reference" + p, "claude-4.7") <= 5_000 for p in parts)
    assert all(body.startswith(p.partition(">\n")[2].partition("\n")[0]) for p in parts)
    assert estimate_tokens(text, "claude-4.7") <= 25_000


def test_what_comes_back_is_a_reference_without_fresh_arguments():
    """claude 43."""
    entries = path_of(use("deploy", arguments="production now"), UserMessage(blocks=(text_block("thanks"),)))
    text = attached(entries, "Deploy $ARGUMENTS. Then !`date`.")
    assert "reference only" in text
    assert "do not do it again" in text
    assert "ARGUMENTS:" not in text
    assert "production" not in text
    assert "!`date`" in text


def test_skills_of_a_sub_agent_do_not_come_back():
    """claude 44."""
    assert attached(path_of(use("inner", agent="explorer"))) == ""


def test_a_skill_that_is_gone_is_left_out():
    assert (
        attach_after_compaction(
            skills_in_use(path_of(use("a"), use("b"))), lambda u: "B" if u.name == "b" else None
        ).count("<skill_ref")
        == 1
    )


def test_of_a_skill_used_twice_the_latest_counts():
    entries = path_of(use("a"), use("b"), use("a", tokens=5))
    assert [(u.name, u.details.get("tokens")) for u in skills_in_use(entries)] == [("a", 5), ("b", None)]
    assert use_counts(entries) == {"a": 2, "b": 1}


def test_the_log_says_who_why_and_what_came_of_it():
    entries = path_of(use("a", tokens=120, tools=("read", "python"), outcome="completed", duration_s=1.5))
    (row,) = log_rows(entries)
    assert (row.name, row.by, row.why, row.tokens, row.tools, row.outcome, row.duration_s) == (
        "a", "model", "the request", 120, ("read", "python"), "completed", 1.5,
    )  # fmt: skip
