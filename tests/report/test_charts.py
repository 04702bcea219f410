from __future__ import annotations

import re
from datetime import timedelta, timezone
from itertools import pairwise

import pytest

from backend.report.chart_lines import broken_at_gaps
from backend.report.chart_theme import CONFIG, faded, palette, template
from backend.report.charts import NARROW_PLOTS_PX, Level, Line, Mark, Panel, histogram, small_multiples, time_series

HOSTILE = '<img src="http://x/y.png"><a href="javascript:x">z</a>'


def series(*names: str, count: int = 10) -> list[Line]:
    return [Line(name, range(count), [float(i + 100 * k) for i in range(count)]) for k, name in enumerate(names)]


def words(figure: object) -> str:
    return " ".join(str(a.text) for a in figure.layout.annotations)  # type: ignore[attr-defined]


def test_both_templates_are_made_of_the_colours_in_the_configuration() -> None:
    known = set(re.findall(r"#[0-9a-f]{6}", CONFIG.read_text()))
    for dark in (False, True):
        drawn = set(re.findall(r"#[0-9a-f]{6}", template(dark).to_plotly_json()["layout"].__repr__()))
        assert drawn
        assert drawn <= known
    assert palette(False) != palette(True)


def test_every_colour_of_words_can_be_read_on_the_page() -> None:
    for dark in (False, True):
        p = palette(dark)
        for colour in (p.ink, p.dim, p.accent, p.done, p.paused, p.failed, *p.series):
            assert contrast(colour, p.page) >= 4.5, colour
            assert contrast(colour, p.panel) >= 4.5, colour


def test_a_line_is_broken_where_nothing_was_measured() -> None:
    at, values = broken_at_gaps(Line("x", (0, 1, 2, 60, 61), (1, 2, 3, 4, 5)))
    assert list(zip(at, values, strict=True)) == [(0, 1), (1, 2), (2, 3), (3, None), (60, 4), (61, 5)]


def test_an_area_falls_to_zero_where_nothing_was_measured() -> None:
    stopped = Line("a", (0, 1, 60, 61), (5.0, 6.0, 7.0, 8.0))
    area, line = time_series([stopped], title="t", subtitle="s", unit="u", since=0, until=100).data
    moments = [float(x.rpartition(":")[2]) for x in area.x[:5]]
    assert list(zip(moments, area.y, strict=False))[:4] == [(0, 0), (0, 5), (1, 6), (1, 0)]
    assert (area.x[4], area.y[4]) == ("1970-01-01 00:01:00.000", 0)
    assert (area.fill, line.fill, area.hoverinfo) == ("tozeroy", None, "skip")
    (panel_area, panel_line) = small_multiples(
        [Panel("A", stopped)], title="t", subtitle="s", unit="u", since=0, until=100
    ).data
    assert (panel_area.fill, panel_line.fill, panel_area.yaxis) == ("tozeroy", None, "y")
    (whole,) = time_series(series("a"), title="t", subtitle="s", unit="u", since=0, until=100).data
    assert whole.fill == "tozeroy"


def test_a_chart_says_which_words_it_goes_without_where_it_is_narrow() -> None:
    marks = [Mark(300, "B1 is at work"), Mark(1700, "B2 is held back", "warning"), Mark(2300, "B2 is at work again")]
    figure = time_series(series("a"), title="t", subtitle="s", unit="u", since=0, until=3600, marks=marks)
    told = [annotation.text for annotation in figure.layout.annotations]
    hidden = figure.layout.meta["hidden_when_narrow"]
    assert [int(width) for width in hidden] == list(NARROW_PLOTS_PX)
    assert hidden["220"]
    assert "B2 is held back" not in [told[i] for i in hidden["220"]]
    above = [shape for shape in figure.layout.shapes if shape.y0 == 1]
    assert [shape.x0 for shape in figure.layout.shapes[: len(told)]] == [shape.x0 for shape in above]


def test_a_time_series_has_title_unit_and_the_viewers_time() -> None:
    india = timezone(timedelta(hours=5, minutes=30))
    figure = time_series(series("0"), title="Decode", subtitle="s", unit="tokens/s", since=0, until=10, zone=india)
    assert figure.layout.title.text == "Decode"
    assert figure.data[0].x[0] == "1970-01-01 05:30:00.000"
    assert figure.data[0].customdata[0] == "00:00:00 UTC"
    assert "tokens/s" in figure.data[0].hovertemplate


def test_lines_are_named_at_their_ends_without_a_legend() -> None:
    figure = time_series(series("0", "1"), title="t", subtitle="s", unit="W", since=0, until=10)
    ends = {a.text: a.y for a in figure.layout.annotations}
    assert set(ends) == {"0", "1"}
    assert abs(ends["0"] - ends["1"]) > 0.05


def test_names_of_equal_lines_are_moved_apart() -> None:
    lines = [Line(str(k), (0, 1), (5.0, 5.0)) for k in range(4)]
    figure = time_series(lines, title="t", subtitle="s", unit="W", since=0, until=10)
    heights = sorted(a.y for a in figure.layout.annotations)
    assert all(b - a > 0.05 for a, b in pairwise(heights))


def test_no_words_of_others_become_markup() -> None:
    lines = series(HOSTILE, "other")
    figure = time_series(lines, title=HOSTILE, subtitle=HOSTILE, unit="W", since=0, until=10, marks=[Mark(5, HOSTILE)])
    assert "<img" not in str(figure.to_json()).replace("\\u003c", "<")
    assert "<a " not in words(figure)


def test_a_level_is_named_and_within_the_chart() -> None:
    figure = time_series(series("0"), title="t", subtitle="s", unit="W", since=0, until=10, level=Level(700, "limit"))
    assert figure.layout.yaxis.range[1] > 700
    assert "limit" in words(figure)


def test_a_chart_without_values_is_drawn_empty() -> None:
    figure = time_series([Line("0", (), ())], title="t", subtitle="s", unit="W", since=0, until=10)
    assert tuple(figure.data[0].y) == ()
    assert figure.layout.yaxis.range[1] > 0


def test_bars_of_a_histogram_stand_between_their_edges() -> None:
    figure = histogram([0, 10, 30], [5, 2], title="t", subtitle="s", unit="tokens", marks=[Mark(8, "median 8")])
    assert list(figure.data[0].x) == [5, 20]
    assert list(figure.data[0].width) == [10, 20]
    assert "median 8" in words(figure)
    with pytest.raises(ValueError, match="2 counts need 3 edges"):
        histogram([0, 1], [1, 2], title="t", subtitle="s", unit="x")


def test_small_multiples_share_scale_and_time_axis() -> None:
    panels = [Panel(f"GPU {k}", line, "90 %") for k, line in enumerate(series("0", "1", "2"))]
    figure = small_multiples(panels, title="t", subtitle="s", unit="%", since=0, until=10, top=100)
    assert {tuple(axis.range) for axis in figure.select_yaxes()} == {(0, 104.0)}
    domains = sorted(tuple(axis.domain) for axis in figure.select_yaxes())
    assert all(a[1] < b[0] for a, b in pairwise(domains))


def test_a_panel_that_knows_nothing_shows_a_dash() -> None:
    figure = small_multiples(
        [Panel("GPU 0", Line("0", (1,), (None,)), "")], title="t", subtitle="s", unit="W", since=0, until=9
    )
    assert "–" in words(figure)


def test_a_value_with_nothing_known_beside_it_is_a_dot() -> None:
    lone = [Line("a", (1, 2, 3, 4, 5), (7.0, None, 8.0, 9.0, None))]
    _, trace = time_series(lone, title="t", subtitle="s", unit="u", since=0, until=6).data
    assert (trace.mode, trace.marker.size) == ("lines+markers", (5, 0, 0, 0, 0))
    (trace,) = time_series([Line("a", (1, 2), (7.0, 8.0))], title="t", subtitle="s", unit="u", since=0, until=6).data
    assert trace.mode == "lines"


def test_a_faded_colour_keeps_its_hue() -> None:
    assert faded("#2f5fd0", 0.13) == "rgba(47,95,208,0.13)"


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it, 1..21."""
    bright, faint = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (faint + 0.05)


def luminance(colour: str) -> float:
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
