"""What a dataset is held for, in words and with examples, and how it goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backend.config import GuardsConfig
from backend.holds import DAMAGED, GuardKind, Hold, from_json, limit_after, to_json
from backend.job.dataset_guard import REPEATED, DatasetGuard
from backend.records import Facts, Intent, IntentAction, Prompt, Row
from tests.sample_rows import make_row

FINE = Facts(answer_tokens=4)
EMPTY = Facts(answer_tokens=0)
LOOP = Facts(answer_tokens=900, repeat_period=6, repeat_share=0.9)
UNCLOSED = Facts(answer_tokens=0, reasoning_closed=False)


def prompt(number: int, attempt: int = 1) -> Prompt:
    return Prompt("B2", number, f"s{number}", (), attempt=attempt)


def row(number: int, facts: Facts = FINE, **changes: Any) -> Row:
    return make_row(number, dataset="B2", sample_id=f"s{number}", facts=facts, **changes)


def new_guard(holds: tuple[Hold, ...] = (), intents: int = 3, **settings: Any) -> DatasetGuard:
    return DatasetGuard(GuardsConfig(**settings), holds, intents=lambda: intents)


def make(guard: DatasetGuard, rows: list[Row], *, attempt: int = 1) -> None:
    """All are started, then all finish, until it is held."""
    for one in rows:
        guard.started(prompt(one.position, attempt))
    for one in rows:
        if guard.hold is None:
            guard.finished(prompt(one.position, attempt), one)


def test_empty_loops_and_thinking_only_are_counted_together_and_told_apart_with_the_worst_of_each() -> None:
    guard = new_guard()
    kinds = [(EMPTY, 6), (LOOP, 8_000), (EMPTY, 7), (UNCLOSED, 300)]
    make(guard, [row(i, kinds[i % 4][0], completion_tokens=kinds[i % 4][1] + i) for i in range(40)])
    hold = guard.hold
    assert hold is not None
    assert guard.unsaved
    assert (hold.kind, hold.limit, hold.intents_before) == (GuardKind.BAD, 0.2, 3)
    assert hold.measured == 1.0
    assert hold.reason.startswith(f"Of the {hold.reason.split()[2]} samples that were started first")
    assert "100 %, where 20 % is the limit. So far:" in hold.reason
    whats = [example.what for example in hold.examples]
    assert whats[0] == "empty"  # the most frequent
    assert sorted(whats[1:]) == ["degenerate", "thinking only"]
    loops = next(example for example in hold.examples if example.what == "degenerate")
    assert loops.completion_tokens >= 8_001


def test_answers_that_repeat_each_other_are_bad_answers() -> None:
    guard = new_guard()
    make(guard, [row(i, Facts(answer_tokens=80, simhash=77)) for i in range(60)])
    assert guard.hold is not None
    assert REPEATED in guard.hold.reason
    assert {example.what for example in guard.hold.examples} == {REPEATED}


def test_tool_calls_and_short_answers_are_no_reason() -> None:
    guard = new_guard()
    make(guard, [row(i, EMPTY, tool_calls='[{"id":"1"}]', finish_reason="tool_calls") for i in range(200)])
    make(guard, [row(i, Facts(answer_tokens=1, simhash=5), completion_tokens=1) for i in range(200, 400)])
    assert guard.hold is None


@pytest.mark.parametrize(
    ("settings", "facts", "changes", "kind", "words"),
    [
        ({"max_truncated_share": 0.1}, FINE, {"finish_reason": "length"}, GuardKind.TRUNCATED, "ended by the cap"),
        ({}, Facts(), {"finish_reason": "rejected", "error": "HTTP 400"}, GuardKind.REJECTED, "refused by the server"),
        ({"min_mean_tokens": 100}, FINE, {"completion_tokens": 9}, GuardKind.SHORT, "have a mean of 9 tokens, below the limit"),
        ({"max_mean_tokens": 100}, FINE, {"completion_tokens": 9_000}, GuardKind.LONG, "have a mean of 9,000 tokens, above"),
    ],
)
def test_each_limit_holds_for_its_own_reason_with_examples_of_it(
    settings: dict[str, Any], facts: Facts, changes: dict[str, Any], kind: GuardKind, words: str
) -> None:
    guard, open_guard = new_guard(**settings), new_guard(max_rejected_share=1.0)
    rows = [row(i, facts, **changes) for i in range(60)]
    make(guard, rows)
    make(open_guard, rows)
    assert guard.hold is not None
    assert guard.hold.kind is kind
    assert words in guard.hold.reason
    assert len(guard.hold.examples) == 3
    assert open_guard.hold is None


def test_what_is_made_again_and_what_is_switched_off_is_not_judged() -> None:
    again, off = new_guard(), new_guard(enabled=False)
    make(again, [row(i, EMPTY, attempt=2) for i in range(60)], attempt=2)
    make(off, [row(i, EMPTY) for i in range(60)])
    assert again.hold is None
    assert off.hold is None


def test_after_going_on_it_is_held_again_only_when_it_is_much_worse_or_for_something_else() -> None:
    guard = new_guard(max_truncated_share=0.5)
    make(guard, [row(i, EMPTY if i % 3 else FINE) for i in range(90)])
    first = guard.hold
    assert first is not None
    words = guard.go_on()
    assert words is not None
    assert f"only above {100 * limit_after(first):.3g} %" in words
    assert guard.hold is None
    assert guard.go_on() is None
    make(guard, [row(i, EMPTY if i % 3 else FINE) for i in range(100, 700)])
    assert guard.hold is None  # as bad as before
    make(guard, [row(i, EMPTY) for i in range(700, 900)])
    assert guard.hold is not None
    assert guard.hold.limit == limit_after(first)
    guard.go_on()
    make(guard, [row(i, FINE, finish_reason="length") for i in range(1_000, 1_100)])
    assert guard.hold is not None
    assert guard.hold.kind is GuardKind.TRUNCATED


def test_another_cap_makes_the_share_that_it_ended_a_new_question() -> None:
    guard = new_guard(max_truncated_share=0.4)
    make(guard, [row(i, finish_reason="length" if i % 5 < 2 else "stop") for i in range(1_000)])
    guard.cap_changed()
    make(guard, [row(i, finish_reason="length") for i in range(1_000, 1_012)])
    assert guard.hold is not None
    assert guard.hold.reason.startswith("Of the 8 samples")


def wish(want: str, subject: str = "dataset:B2") -> Intent:
    return Intent(subject, IntentAction.STATE, {"want": want}, "test", 1.0, "t")


def test_a_hold_outlives_the_process_until_somebody_wants_to_go_on() -> None:
    guard = new_guard(intents=1)
    make(guard, [row(i, EMPTY) for i in range(40)])
    assert guard.hold is not None
    text = to_json(guard.holds)
    before = [wish("running")]
    for later in ([], [wish("paused")], [wish("running", "dataset:B3")], [wish("running", "run")]):
        (hold,) = from_json(text, "B2", [*before, *later])
        assert hold == guard.hold
    lifted = from_json(text, "B2", [*before, wish("paused"), wish("running")])
    again = new_guard(lifted)
    assert again.hold is None
    make(again, [row(i, EMPTY) for i in range(40)])
    assert again.hold is None  # everything was empty when somebody said go on
    assert new_guard(from_json(text, "B2", before), enabled=False).hold is None


@pytest.mark.parametrize("text", ["", "{}x", "[1]", '[{"kind":"odd"}]', '{"a":1}', json.dumps([{"kind": "bad"}])])
def test_a_hold_that_cannot_be_read_is_still_a_hold(text: str) -> None:
    (hold,) = from_json(text, "B2", [])
    assert hold.reason == DAMAGED
    assert not hold.lifted
    assert from_json(text, "B2", [wish("running")])[0].lifted
    assert from_json(None, "B2", []) == ()
