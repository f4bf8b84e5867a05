from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from fastlane.bench import _formatting as words
from fastlane.bench.findings import Interval


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (9.996, "ms", "10.0"),
        (12.34, "ms", "12.3"),
        (1719.6, "ms", "1,720"),
        (0.000123, "US$", "0.000123"),
        (0.0000123, "US$", "1.23e-05"),
        (7, "", "7"),
        (float("nan"), "ms", "none"),
    ],
)
def test_figure_is_written_with_about_three_digits(value: float, unit: str, text: str) -> None:
    assert words.figure(value, unit) == text


@given(st.floats(min_value=1, max_value=1e7))
def test_written_figure_is_within_half_a_per_cent_of_the_value(value: float) -> None:
    assert float(words.figure(value, "ms").replace(",", "")) == pytest.approx(value, rel=0.0051)


def test_change_and_its_interval_are_written_in_per_cent() -> None:
    for ratio, text in ((0.69, "-31 %"), (1.045, "+4.5 %"), (0.9999, "0 %"), (1.00049, "0 %"), (3.5, "+250 %")):
        assert words.change(ratio) == text
    assert words.change_with_interval(Interval(value=0.69, low=0.65, high=0.73)) == "-31 % [-35, -27]"
    assert words.change_with_interval(Interval(value=0.69, low=0.65, high=0.9999), signed=False) == "31 % [0.01, 35]"
    assert words.interval(Interval(value=-12.3, low=-14.0, high=2.0), "ms", signed=True) == "-12.3 [-14.0, +2.00]"
