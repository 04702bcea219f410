from __future__ import annotations

import random

import pytest

from backend.report.chart_labels import CHARACTER_PX, NARROW_PX, Mark, PlacedMark, label, place, too_narrow_for


def x_of(placed: PlacedMark, width_px: float, span: float) -> float:
    return placed.mark.at / span * width_px


@pytest.mark.parametrize("seed", range(40))
def test_no_words_lie_on_each_other_and_no_line_runs_through_words(seed: int) -> None:
    chance = random.Random(seed)
    width, span = 560.0, 3600.0
    severities = ("info", "warning", "error")
    marks = [
        Mark(chance.uniform(0, span), "w" * chance.randint(4, 50), chance.choice(severities))
        for _ in range(chance.randint(2, 12))
    ]
    placed = place(marks, 0, span, width_px=width)
    told = [p for p in placed if p.lane is not None]
    assert len(placed) == len(marks)
    for one in told:
        for other in told:
            if one is other:
                continue
            if one.lane == other.lane:
                assert one.right_px <= other.left_px or other.right_px <= one.left_px
            if one.lane is not None and other.lane is not None and one.lane >= other.lane:
                assert not other.left_px < x_of(one, width, span) < other.right_px


@pytest.mark.parametrize("seed", range(20))
def test_on_a_narrow_plot_the_words_that_are_left_do_not_lie_on_each_other(seed: int) -> None:
    chance = random.Random(seed)
    marks = [Mark(chance.uniform(0, 3600), "w" * chance.randint(4, 30)) for _ in range(chance.randint(2, 12))]
    placed = place(marks, 0, 3600, width_px=560)
    told = [p for p in placed if p.lane is not None]
    hidden = too_narrow_for(placed, 0, 3600)
    left = [p for i, p in enumerate(told) if i not in hidden]
    assert left
    for one in left:
        x = x_of(one, NARROW_PX, 3600)
        width = one.right_px - one.left_px
        begin = x - width if one.leftwards else x
        assert begin >= 0
        assert begin + width <= NARROW_PX
        for other in left:
            assert other is one or other.lane < one.lane or not begin < x_of(other, NARROW_PX, 3600) < begin + width


def test_a_plot_as_wide_as_was_assumed_keeps_all_words() -> None:
    marks = [Mark(600, "B1 running"), Mark(1800, "B2 held", "warning"), Mark(1900, "B2 running")]
    placed = place(marks, 0, 3600, width_px=560)
    assert too_narrow_for(placed, 0, 3600, width_px=560) == []


def test_where_words_meet_on_a_narrow_plot_the_warning_keeps_its_own() -> None:
    marks = [Mark(300, "B1 running"), Mark(1700, "B2 held back", "warning"), Mark(2600, "B2 running")]
    placed = place(marks, 0, 3600, width_px=560)
    told = [p.mark.words for p in placed if p.lane is not None]
    assert told == ["B1 running", "B2 held back", "B2 running"]
    hidden = [told[i] for i in too_narrow_for(placed, 0, 3600, width_px=200)]
    assert hidden == ["B2 running"]


def test_words_stay_within_the_plot() -> None:
    placed = place([Mark(3590, "server restarted"), Mark(1, "started")], 0, 3600, width_px=560)
    assert [(p.mark.words, p.leftwards) for p in placed] == [("started", False), ("server restarted", True)]
    assert all(0 <= p.left_px < p.right_px <= 560 for p in placed)


def test_what_finds_no_room_keeps_its_line_without_words() -> None:
    placed = place([Mark(1800 + i, "x" * 40) for i in range(9)], 0, 3600, width_px=560)
    assert len(placed) == 9
    assert 0 < sum(p.lane is not None for p in placed) < 9


def test_an_error_finds_its_words_before_what_came_of_it() -> None:
    placed = place([Mark(3500, "0 ended", "error"), Mark(3510, "0 ready"), Mark(3512, "x" * 44)], 0, 3600, width_px=560)
    assert placed[0].lane is not None
    crowd = [Mark(1800 + i, "x" * 44) for i in range(9)]
    assert place([*crowd, Mark(1804.5, "y" * 44, "error")], 0, 3600, width_px=560)[5].lane is not None


def test_words_of_earlier_marks_go_above_those_of_later_ones() -> None:
    marks = [Mark(600, "server restarted (out of memory)", "error"), Mark(1000, "B2 done"), Mark(1100, "B3 admitted")]
    placed = place(marks, 0, 3600, width_px=560)
    assert all(p.lane is not None for p in placed)


def test_marks_outside_the_chart_are_left_out() -> None:
    assert place([Mark(-1, "before"), Mark(3601, "after")], 0, 3600, width_px=560) == []
    assert place([Mark(1, "x")], 5, 5, width_px=560) == []


def test_anybodys_words_are_drawn_literally() -> None:
    assert label('<a href="http://x">B&B</a>') == '&lt;a href="http://x"&gt;B&amp;B&lt;/a&gt;'
    assert label("a\nb\x1b[31m\u202e") == "a b\\x1b[31m\\u202e"


def test_long_words_are_cut() -> None:
    assert label("y" * 100).endswith("y…")
    assert len(label("y" * 100)) * CHARACTER_PX < 300
