"""The charts of a report's page: what they show, of any run, and what they leave out."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from fastlane.bench import RecordedRun, Sample
from tests.bench.recorded_runs import a_cell, a_run, an_open_cell, saturated
from tests.bench.reports.made import document, shown, written

NASTY = "</script><b onload=x>&'\"\N{GREEK SMALL LETTER ALPHA}\u2028 " + "very " * 20
FIGURES = ("time_to_first_token", "inter_token_latency", "api_end_to_end", "output_throughput", "decode_speed")
BY_LOAD = [f"{figure}_by_load" for figure in FIGURES]


def charts(run: RecordedRun, kind: str) -> dict[str, list[dict[str, Any]]]:
    """Return the views of each chart of a report's page."""
    page = written(run, ".html", "--kind", kind)
    return {
        name: [json.loads(spec) for spec in re.findall(r'class="spec">(.*?)</script>', figure, re.DOTALL)]
        for name, figure in re.findall(r'<figure [^>]*data-chart="(\w+)">(.*?)</figure>', page, re.DOTALL)
    }


def inside(spec: Any) -> Iterator[dict[str, Any]]:
    """Every row of every data set in a view."""
    if isinstance(spec, dict):
        yield from spec.get("data", {}).get("values", ())
        for each in spec.get("layer", ()):
            yield from inside(each)


def rows_of(views: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for view in views for row in inside(view)]


def sweep(users_at: tuple[int, ...] = (1, 2, 4, 8), **fields: Any) -> RecordedRun:
    """Two scenarios at 1, 2, 4 and 8 users."""
    cells = [
        a_cell(users, name=f"{scenario}, {users} users", workload=scenario)
        for scenario in ("Chatbot", "Tools")
        for users in users_at
    ]
    return a_run(cells=cells, **{"pairs": 8, "arms": ("baseline", "fastlane"), **fields})


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
    cells = [
        an_open_cell(float(load), name=f"{scenario}, {load}/s", workload=scenario)
        if draw(st.booleans())
        else a_cell(load, name=f"{scenario}, {load} users", workload=scenario)
        for scenario in scenarios
        for load in users
    ]
    how = draw(st.sampled_from(["nothing", "errors", "silent", "no usage", "one token", "instant"]))
    every = draw(st.integers(1, 3))
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
    max_examples=8,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(run=runs(), kind=st.sampled_from(["ab", "sweep"]), refuses_one=st.booleans())
@pytest.mark.slow
def test_every_chart_renders_for_any_run(run: RecordedRun, kind: str, refuses_one: bool) -> None:
    vl_convert = pytest.importorskip("vl_convert")
    run = saturated(run, run.header.cells[0].name) if refuses_one else run

    for view in itertools.chain(*charts(run, kind).values()):
        rows = list(inside(view))
        assert 0 < len(rows) < 12_000
        assert all(math.isfinite(each) for row in rows for each in row.values() if isinstance(each, float))
        assert vl_convert.vegalite_to_svg({**view, "width": 400}, allowed_base_urls=[]).count("<path") > 2


def test_sound_run_gives_every_chart() -> None:
    run = sweep((1, 8), pairs=6, metrics=("time_to_first_token", "api_end_to_end"))
    distributions = ["time_to_first_token_distribution", "api_end_to_end_distribution"]

    assert list(charts(run, "ab")) == ["waterfall", *distributions]
    assert list(charts(run, "sweep")) == [*BY_LOAD, distributions[0]]
    # Medians take six requests of each arm.
    assert list(charts(sweep((1, 8), pairs=5), "sweep")) == [distributions[0]]


def test_chart_lines_show_the_figures_of_the_findings() -> None:
    run = sweep(pairs=13)
    rows = rows_of(charts(run, "sweep")["time_to_first_token_by_load"])

    for cell in document(run)["cells"]:
        for figures in cell["figures"]:
            if figures["metric"] == "time_to_first_token":
                row = next(row for row in rows if row["said"].startswith(f"{figures['arm']}, {cell['name']}:"))
                quantiles = [figures["quantiles"][name]["value"] for name in ("p25", "p50", "p75")]
                assert (row["load"], [row["low"], row["middle"], row["high"]]) == (cell["users"], quantiles)


def test_refused_cell_is_not_drawn_and_breaks_lines() -> None:
    run = saturated(sweep(arms=("baseline",)), "Chatbot, 2 users")
    drawn = charts(run, "sweep") | charts(run, "ab")
    for views in drawn.values():
        assert not [row for row in rows_of(views) if "Chatbot, 2 users" in row.get("said", "")]

    rows = rows_of(drawn["time_to_first_token_by_load"])
    assert [row["middle"] is None for row in rows][:4] == [False, True, False, False]


def colours(*arms: str) -> dict[str, str]:
    page = written(a_run(arms=arms, pairs=1, metrics=("api_end_to_end",)), ".html")
    dots = re.findall(r'<i class="dot" data-colour="([^"]+)" aria-hidden="true"></i>([^<]+)</td>', page)
    return {name: colour for colour, name in dots}


def test_each_of_eight_arms_has_its_own_colour() -> None:
    many = colours("baseline", "baseline-again", "encoding", "fastlane")
    crowd = colours("baseline", *(f"arm {at}" for at in range(8)))

    assert (len(set(many.values())), len(set(crowd.values()))) == (4, 9)


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


@pytest.mark.parametrize("failed", [0, 50])
def test_thinned_curve_keeps_corners_within_one_percent(failed: int) -> None:
    """Failed requests count as slower than all others: the curve ends below 1."""

    def fail(sample: Sample) -> Sample:
        bad = sample.part == "measured" and sample.block <= failed
        return dataclasses.replace(sample, error="APITimeoutError", token_ns=()) if bad else sample

    run = a_run(arms=("baseline",), cells=(a_cell(1),), pairs=500, change=fail, metrics=("time_to_first_token",))
    values = sorted((sample.time_to_first_token_s or 0) * 1e3 for sample in run.measured() if sample.error is None)
    (view,) = charts(run, "ab")["time_to_first_token_distribution"]
    corners = [(row["value"], row["share"]) for row in inside(view) if "value" in row]

    assert set(corners) <= {(value, (at + 1) / 500) for at, value in enumerate(values)}
    assert len(corners) <= 260
    assert corners[-1] == (values[-1], (500 - failed) / 500)
    assert all(after[1] - before[1] <= 0.01 + 1e-9 for before, after in itertools.pairwise(corners))


def test_missing_chart_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    result = shown(a_run(pairs=6), "-o", "page.html")

    assert result.exit_code == 1
    assert "fastlane-llm[charts]" in result.stderr
