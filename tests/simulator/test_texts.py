"""What the simulated model writes."""

from __future__ import annotations

import pytest

from backend.simulator import tokens
from backend.simulator.texts import TextKind, TextPlan, split_reasoning, write


@pytest.mark.parametrize("wanted", [1, 2, 5, 6, 7, 8, 9, 50, 2000, 150_000])
@pytest.mark.parametrize("thinking", [True, False])
def test_a_text_has_exactly_the_wanted_number_of_tokens(wanted: int, thinking: bool) -> None:
    ids = write(TextPlan(TextKind.NORMAL, wanted, thinking, start=12345), 10**9)
    assert len(ids) == wanted
    assert ids[-1] == tokens.END


def test_a_text_of_the_model_thinks_and_then_answers() -> None:
    raw = tokens.decode(write(TextPlan(TextKind.NORMAL, 400, True, start=99), 400))
    reasoning, answer = split_reasoning(raw)
    assert reasoning is not None
    assert len(reasoning) > len(answer) > 50
    assert "<think>" not in reasoning + answer


def test_a_cut_text_is_the_beginning_of_the_whole_one() -> None:
    plan = TextPlan(TextKind.NORMAL, 900, True, start=7)
    assert write(plan, 300) == write(plan, 900)[:300]


def test_an_unclosed_thought_has_no_answer() -> None:
    raw = tokens.decode(write(TextPlan(TextKind.UNCLOSED, 60, True, start=7), 60))
    assert raw.startswith("<think>")
    assert "</think>" not in raw
    assert split_reasoning(raw)[1] == ""


def test_a_loop_repeats_itself_until_it_is_cut() -> None:
    ids = write(TextPlan(TextKind.LOOP, 10**9, True, start=7), 5000)
    assert len(ids) == 5000
    assert tokens.decode(ids).count("\\boxed{460}") > 300


def test_long_texts_do_not_repeat() -> None:
    ids = write(TextPlan(TextKind.NORMAL, 100_000, False, start=7), 100_000)
    windows = {tuple(ids[place : place + 48]) for place in range(0, 100_000 - 48, 48)}
    assert len(windows) > 1500
