from __future__ import annotations

import dataclasses
import itertools
import math
import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from fastlane.bench.checks import Checked
from fastlane.bench.findings import Findings, find
from fastlane.bench.recorded import Cell, RecordedRun, Sample
from fastlane.bench.reports._material import Material
from fastlane.bench.reports._page import View, arm_colours, draw, steps
from fastlane.errors import MissingExtraError
from tests.bench.recorded_runs import a_cell, a_run, an_open_cell
from tests.bench.reports.made import checks_with, findings_of

NASTY = "</script><b onload=x>\x00&'\"\N{GREEK SMALL LETTER ALPHA}\u2028 \ud800 " + "very " * 20
NAMES = (
    "waterfall", "time_to_first_token_by_load", "inter_token_latency_by_load",
    "output_throughput_by_load", "decode_speed_by_load", "time_to_first_token_distribution",
    "api_end_to_end_distribution",
)  # fmt: skip


def views(run: RecordedRun, found: Findings, name: str, checked: Checked | None = None) -> tuple[View, ...]:
    return draw(name, Material(recorded=run, findings=found, checked=checked or checks_with()))


def inside(spec: Any) -> Iterator[dict[str, Any]]:
    """Every row of every data set in a view."""
    if isinstance(spec, dict):
        yield from spec.get("data", {}).get("values", ())
        for each in spec.get("layer", ()):
            yield from inside(each)


def rows_of(run: RecordedRun, found: Findings, name: str, checked: Checked | None = None) -> list[dict[str, Any]]:
    return [row for view in views(run, found, name, checked) for row in inside(view.spec)]


def sweep(users_at: tuple[int, ...] = (1, 2, 4, 8), **fields: Any) -> RecordedRun:
    """Two scenarios at 1, 2, 4 and 8 users."""
    cells = [
        a_cell(users, name=f"{scenario}, {users} users", workload=scenario)
        for scenario in ("Chatbot", "Tools")
        for users in users_at
    ]
    return a_run(cells=cells, **{"pairs": 8, **fields})


FIGURES = ("time_to_first_token", "inter_token_latency", "api_end_to_end", "output_throughput", "decode_speed")
samples_changes = st.sampled_from(["nothing", "errors", "silent", "no usage", "one token", "instant"])


def mistreated(sample: Sample, how: str, every: int) -> Sample:
    number = sample.lane * 7 + sample.block
    if how == "nothing" or sample.part != "measured" or number % every:
        return sample
    changes: dict[str, dict[str, Any]] = {
        "errors": {"error": "APITimeoutError", "token_ns": (), "output_tokens": None},
        "silent": {"token_ns": ()},
        "no usage": {"output_tokens": None},
        "one token": {"token_ns": sample.token_ns[:1], "output_tokens": 1},
        "instant": {"token_ns": (sample.issued_ns,) * 3},
    }
    return dataclasses.replace(sample, **changes[how])


@st.composite
def runs(draw: st.DrawFn) -> RecordedRun:
    arms = [f"arm {at}" if at else "baseline" for at in range(draw(st.integers(1, 12)))]
    if len(arms) > 1 and draw(st.booleans()):
        arms[1] = "baseline-again"
    if len(arms) > 2 and draw(st.booleans()):
        arms[2] = NASTY
    users = draw(st.lists(st.integers(1, 64), min_size=1, max_size=3, unique=True))
    scenarios = draw(st.sampled_from([("one",), ("one", NASTY), ("a", "b")]))
    cells: list[Cell] = [
        an_open_cell(float(load), name=f"{scenario}, {load}/s", workload=scenario)
        if draw(st.booleans())
        else a_cell(load, name=f"{scenario}, {load} users", workload=scenario)
        for scenario in scenarios
        for load in users
    ]
    how, every = draw(samples_changes), draw(st.integers(1, 3))
    return a_run(
        arms=arms,
        cells=cells,
        pairs=draw(st.sampled_from([1, 2, 7])),
        ratio=draw(st.sampled_from([0.01, 0.8, 1.0, 40.0])),
        spread=draw(st.sampled_from([0.0, 0.2])),
        change=lambda sample: mistreated(sample, how, every),
        metrics=FIGURES,
    )


# What fails is small enough as it is, and shrinking it would take minutes.
@settings(
    max_examples=14,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(run=runs(), name=st.sampled_from(NAMES), refused=st.sampled_from(["none", "first", "all"]))
@pytest.mark.slow
def test_every_chart_renders_for_any_run(run: RecordedRun, name: str, refused: str) -> None:
    vl_convert = pytest.importorskip("vl_convert")
    cells = [cell.name for cell in run.header.cells]
    found = find(run)
    checked = checks_with(*{"none": [], "first": cells[:1], "all": cells}[refused])

    for view in views(run, found, name, checked):
        rows = list(inside(view.spec))
        assert 0 < len(rows) < 12_000
        assert all(math.isfinite(each) for row in rows for each in row.values() if isinstance(each, float))
        assert vl_convert.vegalite_to_svg({**view.spec, "width": 400}, allowed_base_urls=[]).count("<path") > 2


def test_sound_sweep_gives_every_chart() -> None:
    run = sweep((1, 8), arms=("baseline", "fastlane"), pairs=6)

    assert all(views(run, findings_of(run), name) for name in NAMES)


def test_chart_lines_show_the_figures_of_the_findings() -> None:
    run = sweep(pairs=12)
    found = findings_of(run)

    rows = rows_of(run, found, "time_to_first_token_by_load")

    for cell, arm in itertools.product(run.header.cells, (arm for arm in run.header.arms if arm.role != "again")):
        figures = found.cells[run.header.cells.index(cell)].of(arm.name, "time_to_first_token")
        assert figures is not None
        row = next(row for row in rows if row["said"].startswith(f"{arm.name}, {cell.name}:"))
        assert (row["load"], row["middle"]) == (cell.users, figures.quantiles[0.5].value)
        assert (row["low"], row["high"]) == (figures.quantiles[0.25].value, figures.quantiles[0.75].value)


def test_refused_cell_is_not_drawn_and_breaks_lines() -> None:
    run = sweep()
    found, checked = findings_of(run), checks_with("Chatbot, 2 users")
    for name in NAMES:
        assert not [row for row in rows_of(run, found, name, checked) if "Chatbot, 2 users" in row.get("said", "")]

    rows = rows_of(run, found, "time_to_first_token_by_load", checked)
    chatbot = [row["middle"] is None for row in rows if row["arm"] == "baseline"][:4]
    assert chatbot == [False, True, False, False]


def test_run_of_which_nothing_may_be_used_has_no_charts() -> None:
    run = sweep(pairs=4)
    found, checked = findings_of(run), checks_with(*(cell.name for cell in run.header.cells))
    assert not any(views(run, found, name, checked) for name in NAMES)


def test_arm_keeps_its_colour_whatever_else_was_run() -> None:
    few = arm_colours(a_run(arms=("baseline", "baseline-again", "encoding"), pairs=1))
    many = arm_colours(a_run(arms=("baseline", "baseline-again", "encoding", "fastlane"), pairs=1))

    assert few["encoding"] == many["encoding"]
    assert len(set(many.values())) == 4
    crowd = arm_colours(a_run(arms=["baseline", *(f"arm {at}" for at in range(8))], pairs=1))
    assert len(set(crowd.values())) == 9


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_arm_colors_meet_contrast_in_light_and_dark() -> None:
    sheet = files("fastlane.bench.reports").joinpath("page.css").read_text()
    found = re.findall(r"--(arm-\d|reference|again): light-dark\((#\w{6}), (#\w{6})\)", sheet)

    assert len(found) == 10
    for _, light, dark in found:
        # WCAG 2.2, 1.4.3.
        assert contrast(light, "#ffffff") >= 4.5, light
        assert contrast(dark, "#151c24") >= 4.5, dark


def test_failed_requests_keep_a_curve_from_the_edge() -> None:
    assert steps([1.0, 2.0, 3.0], 1, lower_is_better=True) == [(1.0, 0.25), (2.0, 0.5), (3.0, 0.75)]
    assert steps([1.0, 2.0, 3.0], 1, lower_is_better=False) == [(1.0, 0.5), (2.0, 0.75), (3.0, 1.0)]
    assert steps([], 3, lower_is_better=True) == []


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=2_000), st.integers(0, 50))
def test_thinned_curve_keeps_corners_within_one_percent(values: list[float], failed: int) -> None:
    found = sorted(values)
    whole = {(value, (at + 1) / (len(found) + failed)) for at, value in enumerate(found)}

    corners = steps(found, failed, lower_is_better=True)

    assert set(corners) <= whole
    assert len(corners) <= 260
    assert corners[-1][0] == found[-1]
    # No two corners that are drawn lie further apart than a hundredth, where there were steps in between.
    assert all(
        after[1] - before[1] <= max(0.01, 1 / len(found)) + 1e-9 for before, after in itertools.pairwise(corners)
    )


def test_missing_chart_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(pairs=10)
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingExtraError, match=r"fastlane-llm\[charts\]"):
        views(run, findings_of(run), "waterfall")


def test_run_of_one_arm_has_no_comparisons_to_draw() -> None:
    run = a_run(arms=("baseline",), pairs=10)
    drawn = {name for name in NAMES if views(run, findings_of(run), name)}
    assert drawn == {"waterfall", "time_to_first_token_distribution", "api_end_to_end_distribution"}


def test_sweep_chart_is_empty_below_median_sample_size() -> None:
    run = sweep((1, 8), pairs=5)
    assert not views(run, findings_of(run), "time_to_first_token_by_load")
