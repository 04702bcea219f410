"""Facts about finished texts, and by them what the texts are worth; texts as people know them are in test_examples.py."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from backend.outcomes import RULE_COLUMNS, facts, find_loop, outcome_of, outcome_of_record, simhash, split_reasoning
from backend.outcomes.loops import LOOP_MAX_PERIOD_TOKENS
from backend.records import Facts, Outcome
from backend.rows import COLUMNS, record_from_row
from tests.sample_rows import make_row

STORY = (
    "The ferry left at nine, and by ten the island was a grey line behind us. Nobody spoke much; the gulls followed for a "
    "while, then turned back to the harbour. My sister had packed bread, two apples and a map on which our mother had marked "
    "the lighthouse in red ink. We ate, we looked at the water, and towards noon the engine coughed once and fell silent."
)


def judge(raw: str, finish_reason: str = "stop", **changes: Any) -> Outcome:
    """The outcome of a generated text, by way of its facts."""
    values: dict[str, Any] = {
        "raw_text": raw, "reasoning": None, "answer": raw, "tool_calls": None, "output_ids": None,
        "completion_tokens": max(1, len(raw) // 4), "reasoning_tokens": None,
    }  # fmt: skip
    seen = facts(**(values | changes))
    row = make_row(facts=seen, finish_reason=finish_reason, tool_calls=changes.get("tool_calls"))
    stored = dict(zip(COLUMNS, record_from_row(row), strict=True))
    assert outcome_of_record({name: stored[name] for name in RULE_COLUMNS}) == outcome_of(row)
    return outcome_of(row)


@pytest.mark.parametrize(
    ("raw", "finish_reason", "expected"),
    [
        (STORY, "stop", Outcome.OK),
        ("42", "stop", Outcome.OK),
        ("<think>2 and 2</think>\n\n4", "stop", Outcome.OK),
        ("so 2 and 2 is 4</think>4", "stop", Outcome.OK),  # the opening mark stood in the prompt
        ("[THINK]hm[/THINK]4", "stop", Outcome.OK),
        ("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>4", "stop", Outcome.OK),
        (STORY, "length", Outcome.TRUNCATED),
        ("<think>and then I thought", "length", Outcome.TRUNCATED),
        ("", "stop", Outcome.EMPTY),
        (" \n\u2028", "stop", Outcome.EMPTY),
        ("<think>\n\n</think>\n\n", "stop", Outcome.EMPTY),  # six tokens of nothing
        ("<think>", "stop", Outcome.EMPTY),
        ("<think>and then I thought", "stop", Outcome.THINKING_ONLY),
        ("<think>and then I thought</think>\n", "stop", Outcome.THINKING_ONLY),
        (STORY + " and so on" * 40, "length", Outcome.DEGENERATE),
        (STORY + " and so on" * 40, "stop", Outcome.DEGENERATE),
        ("", "rejected", Outcome.REJECTED),
    ],
)
def test_a_text_is_worth_what_a_reader_would_say(raw: str, finish_reason: str, expected: Outcome) -> None:
    assert judge(raw, finish_reason) == expected


@pytest.mark.parametrize(
    ("reasoning", "answer", "raw", "expected"),
    [
        ("hm", "4", "<think>hm</think>4", Outcome.OK),
        ("hm", "4", "hm4", Outcome.OK),  # the marks are special tokens that the server leaves out
        ("hm", None, "<think>hm", Outcome.THINKING_ONLY),
        ("hm", "", "<think>hm</think>", Outcome.THINKING_ONLY),
        ("hm", "</think>", "<think>hm</think></think>", Outcome.THINKING_ONLY),  # a mark that was left over is no answer
        ("\n", "", "<think>\n</think>", Outcome.EMPTY),
        ("", "4", "4", Outcome.OK),
        (None, None, None, Outcome.EMPTY),
    ],
)
def test_what_the_servers_parser_split_is_taken_as_it_is(
    reasoning: str | None, answer: str | None, raw: str | None, expected: Outcome
) -> None:
    assert judge(raw or "", reasoning=reasoning, answer=answer, raw_text=raw) == expected


def test_a_tool_call_is_a_whole_answer() -> None:
    assert judge("", "tool_calls", answer=None, tool_calls='[{"id":"1"}]') == Outcome.OK
    assert judge("<think>hm", "tool_calls", reasoning="hm", answer=None, tool_calls='[{"id":"1"}]') == Outcome.OK


@pytest.mark.parametrize("text", ["a\ud835", "\udfff" * 100, "a\0b", "\0" * 500, "\u2028" * 3, "x" * 300])
def test_strange_texts_do_not_crash(text: str) -> None:
    seen = facts(
        raw_text=text, reasoning=text, answer=text, tool_calls=None, output_ids=(), completion_tokens=3, reasoning_tokens=None
    )
    assert seen.answer_tokens is not None


def test_tokens_of_the_answer_are_counted_where_the_server_tells_those_of_the_reasoning() -> None:
    values: dict[str, Any] = {
        "raw_text": "<think>hm</think>four",
        "tool_calls": None,
        "output_ids": None,
        "completion_tokens": 10,
    }
    assert facts(**values, reasoning="hm", answer="four", reasoning_tokens=7).answer_tokens == 3
    assert facts(**values, reasoning="hm", answer="four", reasoning_tokens=None).answer_tokens == 2  # 4 of 21 characters
    assert facts(**values, reasoning="hm", answer=" ", reasoning_tokens=7).answer_tokens == 0


def test_without_a_closing_mark_everything_is_reasoning() -> None:
    assert split_reasoning("  <think>a b") == ("a b", "", False)
    assert split_reasoning("a <b> c") == (None, "a <b> c", None)
    assert split_reasoning("a</think>b</think>c") == ("a", "b</think>c", True)


def test_a_loop_of_ids_is_found_with_its_period_and_share() -> None:
    start = tuple(range(1000, 1100))
    assert find_loop(start + (1, 2, 3, 4, 5) * 20, "") == (5, 0.5)
    assert find_loop(start + (7,) * 48, "") == (1, 48 / 148)
    assert find_loop(start + (1, 2, 3, 4, 5) * 20 + (2,), "") == (5, 100 / 201)  # one token that ends the text
    longest = tuple(range(LOOP_MAX_PERIOD_TOKENS))
    assert find_loop(longest * 3, "") == (LOOP_MAX_PERIOD_TOKENS, 1.0)


@pytest.mark.parametrize(
    "ids",
    [
        (),
        (1,),
        (7,) * 47,  # too short
        tuple(range(100)) * 2,  # two copies
        tuple(range(LOOP_MAX_PERIOD_TOKENS + 1)) * 4,  # too long a period
        (1, 2, 3) * 50 + (9, 8),  # the text goes on after it
        (1, 2, 3) * 50 + tuple(range(100, 400)),
    ],
)
def test_what_is_no_loop_at_the_end_is_let_through(ids: tuple[int, ...]) -> None:
    assert find_loop(ids, "") is None


def test_a_loop_that_covers_megabytes_is_measured_to_its_start() -> None:
    period, share = find_loop(None, "x" * 500 + "abcdefghij klmnopqr, " * 100_000) or (0, 0.0)
    assert period == 5  # 21 characters
    assert share == pytest.approx(2_100_000 / 2_100_500, abs=1e-5)


def test_random_ids_with_a_planted_loop_agree_with_a_slow_search() -> None:
    random_source = random.Random(5)
    for _ in range(300):
        ids = tuple(random_source.choices(range(3), k=random_source.randint(0, 80)))
        ids += tuple(random_source.choices(range(3), k=random_source.randint(1, 12))) * random_source.randint(1, 12)
        dominated = len(ids) >= 64 and max(ids.count(one) for one in ids) >= 0.6 * len(ids)
        assert (find_loop(ids, "") or (None,))[0] == (slow_period(ids) or (1 if dominated else None))


def slow_period(ids: tuple[int, ...]) -> int | None:
    """The same question, asked letter by letter."""
    for end in (len(ids), len(ids) - 1):
        for period in range(1, LOOP_MAX_PERIOD_TOKENS + 1):
            run = 0
            while end - run - 1 - period >= 0 and ids[end - run - 1] == ids[end - run - 1 - period]:
                run += 1
            if run + period >= max(48, 3 * period) and run:
                return period
    return None


def test_similar_answers_have_similar_hashes_and_different_ones_do_not() -> None:
    def bits(one: str, other: str) -> int:  # in which the two hashes differ
        return (((simhash(one) or 0) ^ (simhash(other) or 0)) & (2**64 - 1)).bit_count()

    assert bits(STORY, STORY.upper().replace(" ", "\n")) == 0
    assert bits(STORY, STORY.replace("apples", "pears")) <= 10
    assert bits(STORY, STORY[::-1]) >= 18
    assert simhash(" \n") is None
    assert simhash("a") is not None
    assert -(2**63) <= (simhash(STORY) or 0) < 2**63


def test_the_hash_of_a_text_never_changes() -> None:
    assert simhash("Stored hashes are compared with new ones.") == -1037113263879091206


def test_facts_that_are_missing_do_not_make_a_bad_outcome() -> None:
    assert outcome_of(make_row(facts=Facts())) == Outcome.OK


@pytest.mark.parametrize(("long", "within_s"), [("32k tokens", 0.010), ("6 MB", 0.080)])
def test_facts_of_long_texts_take_milliseconds(long: str, within_s: float) -> None:
    random_source = random.Random(1)
    text = " ".join(random_source.choices(STORY.split(), k=22_000)) * (1 if long == "32k tokens" else 50)
    ids = tuple(random_source.choices(range(150_000), k=32_000)) if long == "32k tokens" else None
    best_s = 9.0
    for _ in range(8):  # CPU time, and the best of some: this machine may be busy
        started = time.thread_time()
        facts(
            raw_text=text,
            reasoning=None,
            answer=text,
            tool_calls=None,
            output_ids=ids,
            completion_tokens=1,
            reasoning_tokens=None,
        )
        best_s = min(best_s, time.thread_time() - started)
    assert best_s < within_s
