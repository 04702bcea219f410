"""Texts as models write them beside texts that look like them and are fine: what each outcome is meant to catch, what not."""

from __future__ import annotations

import random

import pytest

from backend.outcomes import NearDuplicates, facts, has_leftover_marks, outcome_of, says_nothing, simhash
from backend.outcomes.similarity import NEAR_MIN_TOKENS, NEAR_OTHERS, NEAR_WINDOW
from backend.records import Outcome
from tests.sample_rows import make_row

REASONING = "<think>\nThe sum of the first ten odd numbers is 10 squared, so 100. Check: 1+3+5=9=3*3. Fine.\n</think>\n\n"
POEM = "\n".join(
    f"{verse}\nRow on, row on, the tide is turning,\nrow on, the lamp on the quay is burning.\n"
    for verse in (
        "The harbour lay in the grey of the morning, and nobody spoke of the night or the warning.",
        "The gulls came in and the nets came out, and the old men told us which way was about.",
        "We left the bread on the kitchen sill, and the door stood open, it stands there still.",
        "The rope was wet and the wood was cold, and the youngest of us was nine years old.",
        "By noon the island was out of sight, and the wind had turned, and the wind was right.",
    )
)
TABLE = (
    "Here is the schedule you asked for. Two weeks are full; from then on the hall is free, so the rest of the rows is\n"
    "the same, and you may fill them in as groups sign up.\n\n"
    "| day | group |\n|---|---|\n| Mon | choir |\n| Tue | chess |\n" + "| free | – |\n" * 16
)
CODE = "def f(n):\n" + "".join(f"    if n == {i}:\n        return {i * i}\n" for i in range(40)) + "    raise ValueError(n)\n"
ABOUT_MARKS = (
    "Reasoning models put their thoughts between `<think>` and `</think>`; the parser cuts at the first </think> it meets. In\n"
    "a chat template this looks like\n\n```\n<|im_start|>assistant\n<think>\n\n</think>\n\n```\n\nand the answer follows it."
)


def judge(
    raw: str, finish_reason: str = "stop", *, tool_calls: str | None = None, ids: tuple[int, ...] | None = None
) -> Outcome:
    seen = facts(
        raw_text=raw, reasoning=None, answer=raw, tool_calls=tool_calls, output_ids=ids,
        completion_tokens=len(ids) if ids else max(1, len(raw) // 4), reasoning_tokens=None,
    )  # fmt: skip
    return outcome_of(make_row(facts=seen, finish_reason=finish_reason, tool_calls=tool_calls))


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("six tokens of nothing", "<think>\n\n</think>\n\n<|im_end|>"),
        ("only the end token", "<|im_end|>"),
        ("two end tokens", "</s></s>"),
        ("a full stop", "."),
        ("dots", " …\n"),
        ("a rule", "---\n"),
        ("an empty heading", "**\n**"),
        ("white space from elsewhere", "\u3000\u00a0\n"),
    ],
)
def test_an_answer_that_says_nothing_is_empty(name: str, raw: str) -> None:
    assert judge(raw) is Outcome.EMPTY, name


@pytest.mark.parametrize(
    "raw", ["42", "B", "Да", "[]", "→ 7", "👍", "x", "(a)", "f", "¬p", "0", "答案", "<b>", "$\\pi$", "{}", "?"]
)
def test_a_short_answer_is_a_whole_answer(raw: str) -> None:
    assert judge(raw) is Outcome.OK
    assert judge(REASONING + raw) is Outcome.OK


def test_a_tool_call_is_not_an_empty_answer_even_where_no_parser_took_it_out() -> None:
    call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    assert judge("", "tool_calls", tool_calls='[{"id": "1", "function": {"name": "weather"}}]') is Outcome.OK
    assert judge(REASONING, "tool_calls", tool_calls='[{"id": "1", "function": {"name": "weather"}}]') is Outcome.OK
    assert judge(call) is Outcome.OK
    assert judge(REASONING + call) is Outcome.OK


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("never closed", REASONING.partition("</think>")[0]),
        ("closed, and then nothing", REASONING),
        ("closed, and then the end token", REASONING + "<|im_end|>"),
        ("closed twice, and then nothing", REASONING + "</think>\n"),
        (
            "thinks again and does not come back",
            REASONING + "It is 100.\n\n<think>\nWait, is it? Let me add them up once more.",
        ),
        ("a second closing mark on a line of its own", REASONING + "I should say 100.\n</think>\n\nThe sum is 100."),
        ("a closing mark at the end", REASONING + "The sum is 100.</think>"),
        ("another model's mark", "[THINK]ten squared[/THINK]The sum is 100.[/THINK]"),
    ],
)
def test_reasoning_that_is_not_closed_properly_or_leads_nowhere_is_thinking_only(name: str, raw: str) -> None:
    assert judge(raw) is Outcome.THINKING_ONLY, name


def test_an_answer_may_speak_of_the_marks() -> None:
    assert judge(ABOUT_MARKS.replace("</think>", "</think >")) is Outcome.OK
    assert judge(REASONING + ABOUT_MARKS) is Outcome.OK
    assert not has_leftover_marks("Put a <think> before it and a </think> behind it.")
    assert has_leftover_marks("<think>")


@pytest.mark.parametrize(
    ("name", "raw", "finish_reason"),
    [
        ("the same box to the cap", REASONING + "So the answer is \\boxed{460}. " * 60, "length"),
        ("one word to the cap", REASONING + "the " * 200, "length"),
        ("the loop stops by itself", REASONING + "I am sorry, let me try again. " * 30, "stop"),
        ("a rule without end", REASONING + "=" * 900, "length"),
        ("one character with gaps", "".join("!?"[i % 9 == 0] for i in range(900)) + "x", "stop"),
        ("a late loop to the cap", CODE * 3 + "    return 0\n" * 30, "length"),
    ],
)
def test_a_text_that_goes_round_in_circles_is_degenerate(name: str, raw: str, finish_reason: str) -> None:
    assert judge(raw, finish_reason) is Outcome.DEGENERATE, name


@pytest.mark.parametrize(
    ("name", "raw"),
    [("a refrain", POEM), ("equal rows at the end", POEM + TABLE), ("much the same code", CODE), ("a long number", "8" * 90)],
)
def test_what_repeats_for_a_reason_is_no_loop(name: str, raw: str) -> None:
    assert judge(raw) is Outcome.OK, name


def test_one_token_that_dominates_is_a_loop_with_gaps() -> None:
    rng = random.Random(3)
    mostly_one = tuple(7 if rng.random() < 0.75 else rng.randrange(100, 9_000) for _ in range(600))
    matrix = tuple(token for _ in range(300) for token in (7, 8, rng.randrange(100, 9_000)))  # "0, " and a number, in turn
    assert judge("…", ids=(*mostly_one, 5, 6)) is Outcome.DEGENERATE
    assert judge("0, 0, 12", ids=(*matrix, 5, 6)) is Outcome.OK
    assert judge("7 7 7", ids=(7,) * 40 + (9, 8)) is Outcome.OK  # too short to tell


def test_the_cap_makes_a_truncated_text_and_a_refusal_a_rejected_one() -> None:
    assert judge(POEM, "length") is Outcome.TRUNCATED
    assert judge(REASONING.partition("</think>")[0], "length") is Outcome.TRUNCATED
    assert judge("", "length") is Outcome.TRUNCATED
    assert judge("", "rejected") is Outcome.REJECTED


@pytest.mark.parametrize("text", ["x" * 5_000, "." * 401, "<think>" * 300 + "a"])
def test_long_texts_say_something(text: str) -> None:
    assert not says_nothing(text)


class TestNearDuplicates:
    REFUSAL = (
        "I'm sorry, but I can't help with that request. If you have questions about {0} in general, about how it is usually "
        "done, or about where to read more on it, I would be glad to help you with those instead. Please tell me what you need."
    )

    @staticmethod
    def add_all(texts: list[str], tokens: int = 60) -> list[bool]:
        index = NearDuplicates()
        return [index.add(simhash(text), tokens) for text in texts]

    def test_the_same_words_again_and_again_are_told_from_the_sixth_on(self) -> None:
        said = self.add_all([self.REFUSAL.format("this") + "\n" * (i % 3) for i in range(20)])
        assert said == [False] * NEAR_OTHERS + [True] * (20 - NEAR_OTHERS)

    def test_a_word_that_differs_hides_nothing(self) -> None:
        words = ["it", "this", "that", "them", "is", "its"]
        texts = [self.REFUSAL.format(words[i % len(words)]) * 6 for i in range(60)]
        assert sum(self.add_all(texts)) >= 30

    def test_different_answers_are_never_near(self) -> None:
        rng = random.Random(2)
        words = (POEM + TABLE + CODE).split()
        assert not any(self.add_all([" ".join(rng.choices(words, k=60)) for _ in range(400)]))

    def test_short_answers_may_be_equal(self) -> None:
        assert not any(self.add_all(["The sentiment is positive."] * 50, tokens=NEAR_MIN_TOKENS - 1))
        assert NearDuplicates().add(None, 100) is False
        assert NearDuplicates().add(5, None) is False

    def test_what_was_said_long_ago_is_forgotten(self) -> None:
        rng, index = random.Random(4), NearDuplicates()
        for _ in range(NEAR_OTHERS):
            index.add(-5, 60)
        for _ in range(NEAR_WINDOW):
            index.add(rng.getrandbits(63), 60)
        assert index.add(-5, 60) is False

    def test_hashes_of_both_signs_within_three_bits_are_near(self) -> None:
        rng = random.Random(9)
        for _ in range(200):
            index, base = NearDuplicates(), rng.getrandbits(64)
            for _ in range(NEAR_OTHERS):
                index.add(signed(base ^ sum(1 << bit for bit in rng.sample(range(64), 3))), 60)
            assert index.add(signed(base), 60)
            assert not index.add(signed(base ^ 0xFFFF), 60)


def signed(bits: int) -> int:
    """As SQLite and Parquet keep it."""
    return bits - 2**64 if bits >= 2**63 else bits
