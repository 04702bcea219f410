"""The speed curve."""

from __future__ import annotations

import pytest

from backend.simulator.curve import DEFAULT_CURVE, SpeedCurve


def test_the_curve_goes_through_its_points_and_is_straight_between_them() -> None:
    curve = SpeedCurve.parse(DEFAULT_CURVE)
    assert [curve.at(n) for n in (1, 4, 8, 16, 32, 48)] == [62, 207, 370, 385, 393, 409]
    assert curve.at(6) == pytest.approx((207 + 370) / 2)
    assert curve.at(0) == 0


def test_the_curve_stays_flat_after_its_last_point() -> None:
    assert SpeedCurve.parse("1:10,2:15").at(500) == 15


@pytest.mark.parametrize("text", ["", "1", "1:x", "0:5", "4:10,1:5", "1:-3"])
def test_a_curve_that_makes_no_sense_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="curve"):
        SpeedCurve.parse(text)
