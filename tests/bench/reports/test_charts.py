from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from fastlane import ConfigurationError
from fastlane.bench.findings import Attribution, Interval, Share, find
from fastlane.bench.recorded import Cell, RecordedRun, Sample
from fastlane.bench.reports._charts import charts, images, svg
from fastlane.bench.reports._charts_distribution import steps, ticks
from fastlane.bench.reports._charts_panels import ratio_ticks
from fastlane.bench.reports._charts_style import THEME, apart, change, strokes
from fastlane.errors import MissingExtraError
from tests.bench.recorded_runs import a_cell, a_run, an_open_cell
from tests.bench.reports.made import checks_with, findings_of

NASTY = "</script><b onload=x>\x00&'\"\N{GREEK SMALL LETTER ALPHA}\u2028 \ud800 " + "very " * 20
NAMES = (
    "ttft_by_users", "itl_by_users", "e2e_by_users", "throughput_by_users", "decode_speed_by_users", "itl_bands",
    "scaling_efficiency", "decode_speed_range", "ttft_range", "forest", "waterfall", "attribution",
    "ecdf_time_to_first_token", "ecdf_api_end_to_end", "lengths_time_to_first_token",
)  # fmt: skip


def sweep(users_at: tuple[int, ...] = (1, 2, 4, 8), **fields: Any) -> RecordedRun:
    """Two scenarios at 1, 2, 4 and 8 users."""
    cells = [
        a_cell(users, name=f"{scenario}, {users} users", scenario=scenario)
        for scenario in ("Chatbot", "Tools")
        for users in users_at
    ]
    return a_run(cells=cells, **{"pairs": 8, **fields})


def an_attribution(cell: str, *plays: str) -> Attribution:
    """What plays contribute, the first the most."""
    shares = tuple(
        Share(play=play, alone=None, last=None, share=Interval(value=-90.0 / at, low=-99.0 / at, high=-80.0 / at))
        for at, play in enumerate(plays, start=1)
    )
    total = sum(each.share.value for each in shares)
    return Attribution(
        cell=cell,
        metric="time_to_first_token",
        total=Interval(value=total, low=total - 12, high=total + 12),
        shares=shares,
        interaction=Interval(value=7.0, low=-4.0, high=18.0),
    )


def inside(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every row of every data set in a chart."""
    for each in spec["datasets"].values():
        yield from each


def shown(spec: Any) -> list[str]:
    """What a chart says of its marks."""
    return [row["words"] for row in inside(spec) if row.get("words")]


def drawn(spec: Any) -> int:
    """How many marks the drawing of a chart has, and that it is well-formed."""
    root = ElementTree.fromstring(svg(spec))
    return sum(each.tag.endswith(("path", "text", "line", "rect")) for each in root.iter())


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
    scenarios = draw(st.sampled_from([(None,), ("one", NASTY), ("a", "b")]))
    cells: list[Cell] = [
        an_open_cell(float(load), name=f"{scenario}, {load}/s", scenario=scenario)
        if draw(st.booleans())
        else a_cell(load, name=f"{scenario}, {load} users", scenario=scenario)
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
@given(run=runs(), name=st.sampled_from(NAMES), narrow=st.booleans(), refused=st.sampled_from(["none", "first", "all"]))
def test_every_chart_can_be_drawn_of_any_run_that_has_something_for_it(
    run: RecordedRun, name: str, narrow: bool, refused: str
) -> None:
    cells = [cell.name for cell in run.header.cells]
    found = dataclasses.replace(find(run), attributions=(an_attribution(cells[0], "one play", NASTY),))
    checked = checks_with(*{"none": [], "first": cells[:1], "all": cells}[refused])

    for spec in charts(run, found, checked, narrow=narrow, names=[name]).values():
        assert drawn(spec) > 3
        assert len(list(inside(spec))) < 12_000


def test_a_sound_sweep_gives_every_chart_in_both_widths() -> None:
    run = sweep((1, 8), arms=("baseline", "fastlane"), pairs=6)
    found = dataclasses.replace(
        findings_of(run), attributions=(an_attribution("Chatbot, 1 users", "wire", "encoding"),)
    )

    for narrow in (False, True):
        made = charts(run, found, narrow=narrow, names=NAMES)
        assert set(NAMES) == set(made)
        for spec in made.values():
            assert spec["usermeta"]["title"]
            root = ElementTree.fromstring(svg(spec))
            width = float(root.attrib["width"])
            # What is wider than its place is made smaller by the page, and then hard to read.
            assert width <= (352 if narrow else 920)


def test_what_a_line_shows_are_the_findings_own_figures() -> None:
    run = sweep(pairs=12)
    found = findings_of(run)

    rows = list(inside(charts(run, found, names=["ttft_by_users"])["ttft_by_users"]))

    for cell, arm in itertools.product(run.header.cells, run.header.arms):
        figures = found.cells[run.header.cells.index(cell)].of(arm.name, "time_to_first_token")
        assert figures is not None
        row = next(row for row in rows if str(row.get("words", "")).startswith(f"{arm.name}, {cell.name}:"))
        assert (row["x"], row["value"]) == (cell.users, figures.quantiles[0.5].value)
        assert (row["low"], row["high"]) == (figures.quantiles[0.25].value, figures.quantiles[0.75].value)


def test_efficiency_is_the_speed_over_that_of_the_fewest_users() -> None:
    run = sweep(pairs=12, arms=("baseline",))
    found = findings_of(run)
    speeds = {each.cell: each.of("baseline", "decode_speed") for each in found.cells}

    rows = [
        row for row in inside(charts(run, found, names=["scaling_efficiency"])["scaling_efficiency"]) if "words" in row
    ]

    for row in rows:
        scenario = row["series"]
        one, here = speeds[f"{scenario}, 1 users"], speeds[f"{scenario}, {row['x']:g} users"]
        assert one is not None
        assert here is not None
        median, base = here.quantiles[0.5].value, one.quantiles[0.5].value
        assert median is not None
        assert base is not None
        assert row["value"] == pytest.approx(median / base * 100)
    assert len(rows) == 8


def test_the_forest_shows_each_comparison_above_the_instruments_band() -> None:
    run = a_run(pairs=60, ratio=0.7)
    found = findings_of(run)

    rows = [row for row in inside(charts(run, found, names=["forest"])["forest"]) if "band_low" in row]

    assert len(rows) == len(run.header.metrics)
    for row, metric in zip(rows, run.header.metrics, strict=True):
        mine, copy = (found.cells[0].comparison(arm, metric) for arm in ("fastlane", "baseline-again"))
        assert mine is not None
        assert mine.typical is not None
        assert copy is not None
        assert copy.typical is not None
        assert (row["value"], row["low"], row["high"]) == (mine.typical.value, mine.typical.low, mine.typical.high)
        assert (row["band_low"], row["band_high"]) == (copy.typical.low, copy.typical.high)
        assert row["shown"]


def test_no_figure_of_a_refused_cell_is_drawn_and_lines_break_there() -> None:
    run = sweep()
    found = findings_of(run)
    for name, spec in charts(run, found, checks_with("Chatbot, 2 users"), names=NAMES).items():
        assert not [words for words in shown(spec) if "Chatbot, 2 users" in words], name
        assert "Chatbot, 2 users" in spec["usermeta"]["notes"][-1]

    spec = charts(run, found, checks_with("Chatbot, 2 users"), names=["ttft_by_users"])["ttft_by_users"]
    chatbot = [row for row in inside(spec) if str(row.get("words", "")).startswith("baseline, Chatbot")]
    assert [row["x"] for row in chatbot] == [1, 4, 8]
    assert chatbot[0]["segment"] != chatbot[1]["segment"]
    assert "invalid" in svg(spec)


def test_charts_that_pool_cells_leave_refused_ones_out() -> None:
    run = sweep(pairs=4)
    found = findings_of(run)
    refused = [cell.name for cell in run.header.cells[1:]]

    made = charts(run, found, checks_with(*refused), names=["waterfall"])

    assert all("of 4 requests" in words or "mean of 4" in words for words in shown(made["waterfall"]))
    assert "waterfall" not in charts(run, found, checks_with(*refused, run.header.cells[0].name))


def test_an_arm_has_one_colour_in_all_charts() -> None:
    run = a_run(arms=("baseline", "baseline-again", "wire", "encoding"), pairs=10)
    found = findings_of(run)
    colours = {stroke.label: stroke.colour for stroke in strokes(run).values()}

    assert len(set(colours.values())) == 4
    for spec in charts(run, found).values():
        for scale in _scales(spec):
            for name, colour in zip(scale["domain"], scale["range"], strict=True):
                assert colours.get(name, colour) == colour


def _scales(spec: Any) -> Iterator[dict[str, Any]]:
    if isinstance(spec, dict):
        if isinstance(spec.get("color"), dict) and isinstance(spec["color"].get("scale"), dict):
            yield spec["color"]["scale"]
        for each in spec.values():
            yield from _scales(each)
    elif isinstance(spec, list):
        for each in spec:
            yield from _scales(each)


def test_every_colour_has_one_of_its_own_on_dark_ground() -> None:
    run = a_run(arms=["baseline", "baseline-again", *(f"arm {at}" for at in range(10))], pairs=2)
    found = dataclasses.replace(findings_of(run), attributions=(an_attribution("chat, 4 users", "wire"),))
    painted = set()
    for spec in charts(run, found, checks_with(), names=NAMES).values():
        for each in ElementTree.fromstring(svg(spec)).iter():
            painted |= {each.attrib.get("fill"), each.attrib.get("stroke")} - {None, "none", "transparent"}
    assert painted
    assert painted <= THEME.keys()


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_arms_stand_out_from_the_ground_and_read_as_text() -> None:
    run = a_run(arms=["baseline", "baseline-again", *(f"arm {at}" for at in range(10))], pairs=1)
    for stroke in strokes(run).values():
        # WCAG 2.2, 1.4.3: names beside lines are in the arm's colour.
        assert contrast(stroke.colour, "#ffffff") >= 4.5, stroke
        assert contrast(THEME[stroke.colour], "#151c24") >= 4.5, stroke


def test_failed_requests_keep_a_curve_from_the_edge() -> None:
    assert steps([1.0, 2.0, 3.0], 1, lower_is_better=True) == [(1.0, 0.25), (2.0, 0.5), (3.0, 0.75)]
    assert steps([1.0, 2.0, 3.0], 1, lower_is_better=False) == [(1.0, 0.5), (2.0, 0.75), (3.0, 1.0)]


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=2_000), st.integers(0, 50))
def test_a_thinned_curve_goes_through_the_whole_ones_corners(values: list[float], failed: int) -> None:
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


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30), st.floats(0.1, 20))
def test_labels_stand_apart_within_bounds_and_in_order(places: list[float], gap: float) -> None:
    found = apart(places, gap, 0.0, 100.0)

    room = min(gap, 100 / max(1, len(places) - 1))
    ordered = sorted(found)
    assert all(after - before >= room - 1e-6 for before, after in itertools.pairwise(ordered))
    assert ordered[0] >= -1e-6
    assert ordered[-1] <= 100 + 1e-6
    assert all(
        found[one] <= found[other]
        for one, other in itertools.permutations(range(len(places)), 2)
        if places[one] < places[other]
    )


def test_a_label_with_room_stays_where_it_is() -> None:
    assert apart([10.0, 50.0, 51.0], 10, 0, 100) == [10.0, 45.5, 55.5]


@given(st.floats(1e-6, 0.99), st.floats(1.01, 1e6), st.integers(3, 9))
def test_ratios_on_an_axis_are_few_and_between_its_ends(low: float, high: float, most: int) -> None:
    found = ratio_ticks(low, high, most)
    assert 1 <= len(found) <= 2 * most
    assert all(low - 1e-9 <= each <= high + 1e-9 for each in found)
    assert 1.0 in found


@given(st.floats(1e-5, 1e5), st.floats(1.001, 1e6))
def test_values_on_a_logarithmic_axis_are_few_and_between_its_ends(low: float, factor: float) -> None:
    found = ticks(low, low * factor)
    assert 2 <= len(found) <= 9
    assert all(low * 0.999 <= each <= low * factor * 1.001 for each in found)


def test_changes_are_said_as_they_are_read() -> None:
    assert [change(ratio) for ratio in (0.69, 1.0, 1.045, 0.9996, 2.0, 44.1)] == [
        "\N{MINUS SIGN}31 %",
        "0.0 %",
        "+4.5 %",
        "0.0 %",
        "+100 %",
        "\N{MULTIPLICATION SIGN}44.1",
    ]


def test_images_are_files_of_their_own_with_title_and_notes(tmp_path: Path) -> None:
    run = a_run(pairs=10)
    made = charts(run, findings_of(run), names=["forest"])

    written = images(made, tmp_path / "pictures")

    assert [path.name for path in written] == ["forest.png", "forest.svg"]
    assert written[0].read_bytes().startswith(b"\x89PNG")
    text = written[1].read_text(encoding="utf-8")
    assert "Change against baseline" in text
    assert "hollow dot" in text
    with pytest.raises(ConfigurationError, match="jpeg"):
        images(made, tmp_path, ("jpeg",))


def test_what_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(pairs=2)
    found = findings_of(run)
    made = charts(run, found, names=["forest"])
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MissingExtraError, match=r"fastlane-llm\[charts\]"):
        svg(made["forest"])
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingExtraError, match=r"fastlane-llm\[charts\]"):
        charts(run, found)


def test_a_run_of_one_arm_has_no_comparisons_to_draw() -> None:
    run = a_run(arms=("baseline",), pairs=10)
    made = charts(run, findings_of(run))
    assert {"waterfall", "ecdf_time_to_first_token", "ttft_by_users"} <= made.keys()
    assert not {"forest", "attribution", "scaling_efficiency"} & made.keys()


def test_a_sweep_draws_nothing_of_requests_that_are_too_few_for_a_median() -> None:
    run = sweep((1, 8), pairs=5)
    assert not {"ttft_by_users", "scaling_efficiency", "decode_speed_range"} & charts(run, findings_of(run)).keys()
