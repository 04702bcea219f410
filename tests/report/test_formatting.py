"""Figures are short and honest, and missing ones are dashes."""

from __future__ import annotations

import pytest

from backend.report.formatting import compact, duration, moment, number, plain, plural, share, table


def test_missing_is_a_dash() -> None:
    assert [number(None), compact(None), duration(None), moment(None), share(None, 3), share(3, None)] == ["–"] * 6


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (999, "999"), (1234, "1.23k"), (9995, "10.0k"), (99950, "100k"), (999_999, "1.00M"), (10_000_000, "10.0M")],
)
def test_compact_keeps_three_digits(value: int, text: str) -> None:
    assert compact(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.6, "1 min 00 s"), (3725, "1 h 02 min"), (90000, "1 d 01 h"), (-5, "-5 s")],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 9, "0%"), (1, 1000, "0.1%"), (1, 2, "50%"), (9999, 10000, "99.9%"), (99999, 100000, "99.9%"), (5, 5, "100%")],
)
def test_what_is_not_quite_all_is_not_all(part: int, whole: int, text: str) -> None:
    assert share(part, whole) == text


def test_counted_nouns_agree() -> None:
    assert [plural(1, "file"), plural(0, "file"), plural(1200, "wish", "wishes")] == ["1 file", "0 files", "1,200 wishes"]


def test_plain_text_keeps_letters_of_all_languages_and_nothing_that_steers() -> None:
    assert plain("naïve 漢字 😀") == "naïve 漢字 😀"
    assert plain("\x1b]0;x\x07\u202e\u200b\x85\u2028\udc80") == r"\x1b]0;x\x07\u202e\u200b\x85\u2028\udc80"
    assert plain("a\nb\tc") == "a\nb\\tc"


def test_a_table_is_aligned_and_one_cell_is_one_line() -> None:
    assert table(("name", "n"), [["a\nb", "1"], ["c", "200"]]) == "name    n\na\\nb    1\nc     200"
