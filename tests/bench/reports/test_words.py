from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from fastlane.bench import _formatting as words
from fastlane.bench.findings import Interval, Quantile
from fastlane.bench.reports import _tables as tables


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.5231, "ms", "0.52"),
        (9.996, "ms", "10.0"),
        (12.34, "ms", "12.3"),
        (99.96, "ms", "100"),
        (1719.6, "ms", "1,720"),
        (944_246, "bytes", "944,246"),
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


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.69, "-31 %"), (1.045, "+4.5 %"), (1.0, "0 %"), (0.9999, "0 %"), (1.00049, "0 %"), (3.5, "+250 %")],
)
def test_ratio_is_written_as_the_change_that_it_means(ratio: float, text: str) -> None:
    assert words.change(ratio) == text


def test_interval_is_formatted_in_brackets() -> None:
    assert words.change_with_interval(Interval(value=0.69, low=0.65, high=0.73)) == "-31 % [-35, -27]"
    assert words.change_with_interval(Interval(value=0.69)) == "-31 %"
    assert words.change_with_interval(Interval(value=0.69, low=0.65, high=0.9999), signed=False) == "31 % [0.01, 35]"
    assert words.interval(Interval(value=323.4, low=318, high=330.2), "ms") == "323 [318, 330]"
    assert words.interval(Interval(value=-12.3, low=-14.0, high=2.0), "ms", signed=True) == "-12.3 [-14.0, +2.00]"


def test_percentile_that_n_does_not_allow_is_no_figure() -> None:
    assert tables.percentile(Quantile(share=0.95, n=20, value=None, wanted=72)) == tables.NOTHING


def test_percentile_among_the_failed_requests_is_no_figure() -> None:
    assert tables.percentile(Quantile(share=0.95, n=100, value=None, wanted=72)) == ("failed", "bad")


def test_titles_keep_their_capitals_within_a_sentence() -> None:
    assert words.lowered("API end-to-end") == "API end-to-end"
    assert words.lowered("Time to first token") == "time to first token"


def test_lists_and_counts_read_as_sentences_do() -> None:
    assert words.listed(["a", "b", "c"]) == "a, b and c"
    assert words.listed(["a"]) == "a"
    assert words.listed([]) == ""
    assert (words.counted(1, "pair"), words.counted(2400, "pair")) == ("1 pair", "2,400 pairs")
