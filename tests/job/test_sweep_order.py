"""Which wishes for a sweep are refused, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from backend.job.sweep_order import LEVEL_LIMIT_S, SweepOrder, read_imported, read_order


def test_an_order_has_a_time_for_each_level_and_drains_unless_told_otherwise() -> None:
    assert read_order({"levels": [1, 4]}) == SweepOrder((1, 4), LEVEL_LIMIT_S, drain=True)
    assert read_order({"levels": [8], "level_limit_s": 30, "drain": False}) == SweepOrder((8,), 30.0, drain=False)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "None is no list of levels, such as [1, 4, 8, 16]."),
        ({"levels": []}, "[] is no list of levels"),
        ({"levels": "1,4"}, "'1,4' is no list of levels"),
        ({"levels": [1, 2.5]}, "the level 2.5 is not a whole number of at least 1."),
        ({"levels": [True]}, "the level True is not a whole number"),
        ({"levels": [0, 1]}, "the level 0 is not a whole number of at least 1."),
        ({"levels": [1, 20_001]}, "a level is at most 20,000 requests."),
        ({"levels": [4, 1]}, "the levels 4, 1 must ascend, each named once."),
        ({"levels": [1, 1]}, "the levels 1, 1 must ascend"),
        ({"levels": list(range(1, 26))}, "25 levels are more than 24; leave some out."),
        ({"levels": [1], "level_limit_s": 0.5}, "a level's time 0.5 is no number of seconds from 1 to 86400."),
        ({"levels": [1], "level_limit_s": "10"}, "a level's time '10' is no number of seconds"),
    ],
)
def test_an_order_that_cannot_be_is_refused_in_words(value: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=r"^sweep: ") as refusal:
        read_order(value)
    assert words in str(refusal.value)


def test_levels_of_a_file_are_taken_with_what_it_tells() -> None:
    imported = read_imported(
        {"measured": [{"concurrency": 4, "tokens_per_s": 200, "first_token_s": 0.5}], "source": "b.jsonl", "replicas": 2}
    )
    assert (imported.source, imported.replicas) == ("b.jsonl", 2)
    assert (imported.levels[0].tokens_per_s, imported.levels[0].first_token_s) == (200.0, 0.5)
    assert imported.levels[0].half_width_tokens_per_s is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"measured": []}, "what was measured is no list of levels."),
        ({"measured": [{"concurrency": 4, "tokens_per_s": 0}]}, "0 tokens/s at 4 requests is no number above 0."),
        ({"measured": [{"concurrency": 4, "tokens_per_s": float("nan")}]}, "nan tokens/s at 4 requests"),
        ({"measured": [{"concurrency": 4, "tokens_per_s": 10**400}]}, "tokens/s at 4 requests"),
        ({"measured": [{"concurrency": 2**64, "tokens_per_s": 5}]}, "a level is at most 20,000 requests."),
        ({"measured": [{"concurrency": None, "tokens_per_s": 5}]}, "the level None is not a whole number"),
        ({"measured": [{"concurrency": 4, "tokens_per_s": 5}], "replicas": 0}, "0 is no number of replicas."),
    ],
)
def test_levels_of_a_file_that_cannot_be_are_refused(value: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=r"^sweep: ") as refusal:
        read_imported(value)
    assert words in str(refusal.value)
