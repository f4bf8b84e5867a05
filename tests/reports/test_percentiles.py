from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fastlane.records.quantiles import quantile
from fastlane.reports.groups import percentiles

times = st.floats(min_value=0, max_value=1e6, allow_nan=False)
some = st.lists(times, min_size=1, max_size=150)


@given(some, st.floats(0, 1))
def test_a_quantile_is_numpys_and_lies_among_the_values(values: list[float], share: float) -> None:
    found = quantile(sorted(values), share)

    assert found == pytest.approx(float(np.quantile(values, share)), rel=1e-9, abs=1e-12)
    assert min(values) <= found <= max(values)


@given(some)
def test_a_percentile_of_too_few_values_is_left_out(values: list[float]) -> None:
    found = percentiles(values)

    assert found is not None
    assert (found.n, found.highest) == (len(values), max(values))
    assert (found.p95 is None) == (len(values) < 20)
    assert (found.p99 is None) == (len(values) < 100)
