"""The two reports of one run: arms beside each other, and figures by users or rate and by length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, stdev
from typing import Final

from .._formatting import change, counted, figure, interval, listed, lowered, percent
from ..findings import ArmComparison, Attribution, Interval
from ..recorded import ArmInfo, Cell, RequestMetric, Sample, metric_named
from ._material import TITLES, Material, scenario_of
from ._tables import (
    NOTHING,
    UNKNOWN,
    Columns,
    Entry,
    Line,
    Names,
    RunReport,
    Section,
    Statistic,
    Table,
    Tone,
    arm_table,
    compose,
    errors,
    estimate,
    metric_table,
    number,
    ratio,
    share,
    table,
)

INSTANT_MS: Final = 20.0
"""Below this inter-token latency a stream feels instant: the boundary of a published H200 report."""
SLUGGISH_MS: Final = 70.0
"""Above this one it feels sluggish: the same."""
_COLD: Final = (
    "One request each, in no other figure: imports, connection and caches are cold, and what a client imports and "
    "makes on its first call is inside. Warm: the same prompt, sent once more to warm up. Making the client is outside."
)
_PACE: Final = ("decode_speed", "inter_token_latency", "time_to_first_token")
_SWEPT: Final = (
    "time_to_first_token", "time_per_output_token", "inter_token_latency", "generation_time", "api_end_to_end",
    "decode_speed", "output_throughput",
)  # fmt: skip
_COMPARED_BY: Final[tuple[Statistic, ...]] = ("n", "failed", "mean", "p50", "p90", "p95", "p99")
_SWEPT_BY: Final[tuple[Statistic, ...]] = (
    "n", "failed", "mean", "deviation", "CV", "min", "p25", "p50", "p75", "p95", "p99", "max",
)  # fmt: skip


def ab_report(material: Material) -> RunReport:
    """Return the report of arms beside each other."""
    metrics = listed([lowered(metric.title) for metric in material.metrics])
    others = listed([arm.name for arm in material.compared_arms], "or") or "a copy of it"
    against = listed(material.references) + (", each its counterpart" if len(material.references) > 1 else "")
    return compose(
        material,
        "ab",
        title="A/B",
        question=f"Does {others} change {metrics} against {against}, and by how much?",
        verdicts=[*_verdicts(material), *_instrument(material)],
        sections=[
            Section(title="What changed", parts=tuple(_changes(material))),
            Section(title="Where the time goes", parts=(_phases(material),)),
            *_attributions(material),
            *_cold(material),
            Section(title="What it took", parts=(_work(material),)),
        ],
        metrics=material.metrics,
    )


def sweep_report(material: Material) -> RunReport:
    """Return the report by users or rate, and by length of input and output."""
    return compose(
        material,
        "sweep",
        title="Sweep",
        question="How do times and speeds change with the load, and with the lengths of inputs and outputs?",
        verdicts=(),
        sections=[
            Section(title="All cells", parts=(_pace(material),)),
            *(_scenario(material, name) for name in material.scenarios if _cells(material, name)),
            *_cold(material),
        ],
        metrics=[metric_named(name) for name in _SWEPT],
    )


# Verdicts


def band_of(material: Material, cell: str, arm: str, metric: str) -> float | None:
    """Return by how much, as a share, the copy of an arm's reference may differ from it; None where not known."""
    again = material.recorded.header.again_of(arm)
    comparison = material.comparison(cell, again.name, metric) if again else None
    if comparison is None or comparison.typical is None:
        return None
    low, high = comparison.typical.low, comparison.typical.high
    return None if low is None or high is None else max(abs(1 - low), abs(high - 1))


def tone_of(comparison: ArmComparison, band: float | None = None) -> Tone:
    """Return how a verdict is meant; a change within what two equal arms show is a warning."""
    tones: dict[str, Tone] = {"better": "good", "worse": "bad", "not comparable": "warning"}
    return "warning" if _within(comparison, band) else tones.get(comparison.verdict.kind, "plain")


def _within(comparison: ArmComparison, band: float | None) -> bool:
    shown = comparison.typical if comparison.verdict.kind in ("better", "worse") else None
    return band is not None and shown is not None and abs(shown.value - 1) <= band


def verdict_word(comparison: ArmComparison, metric: RequestMetric) -> str:
    """Return a verdict in a word or two: "faster", "no difference shown"."""
    return {"better": metric.words[0], "worse": metric.words[1]}.get(comparison.verdict.kind, comparison.verdict.kind)


def verdict_sentence(who: str, comparison: ArmComparison, metric: RequestMetric, band: float | None) -> str:
    """Return a comparison in words: "encoding: time to first token faster by 31 % [27, 35], 240 pairs"."""
    colon = ":" if comparison.verdict.kind in ("no difference shown", "too few pairs") else ""
    pairs = counted(comparison.pairs, "pair")
    ending = f", {pairs}" if comparison.verdict.kind in ("better", "worse") else f" ({pairs})"
    if _within(comparison, band):
        ending += f"; no more than the instrument's own noise of ±{percent(band or 0.0)}"
    return f"{who}: {lowered(metric.title)}{colon} {comparison.verdict.sentence}{ending}"


def _verdicts(material: Material) -> Iterator[Line]:
    for arm in material.compared_arms:
        for metric in material.metrics:
            found = [
                (each, band_of(material, cell.name, arm.name, metric.name))
                for cell in material.valid_cells
                if (each := material.comparison(cell.name, arm.name, metric.name)) is not None
            ]
            if not found:
                continue
            tones = {tone_of(each, band) for each, band in found}
            tone = tones.pop() if len(tones) == 1 else "plain"
            who = material.who(arm.name)
            if material.several_cells:
                words = [verdict_word(each, metric) for each, _ in found]
                counts = listed(f"{word} in {words.count(word)}" for word in dict.fromkeys(words))
                yield Line(f"{who}: {lowered(metric.title)} {counts} of {counted(len(found), 'cell')}", tone)
            else:
                yield Line(verdict_sentence(who, found[0][0], metric, found[0][1]), tone)


def _instrument(material: Material) -> Iterator[Line]:
    if not material.recorded.header.copies:
        yield Line("Instrument noise: not known, for the run had no second copy of the reference (A/A).")
        return
    for reference in material.references:
        bands = {}
        for metric in material.metrics:
            found = [band_of(material, cell.name, reference, metric.name) for cell in material.valid_cells]
            if known := [band for band in found if band is not None]:
                bands[lowered(metric.title)] = max(known)
        if bands:
            which = f", {reference}" if len(material.references) > 1 else ""
            where = ", the widest of its cells" if material.several_cells else ""
            noise = ", ".join(f"{title} ±{percent(band)}" for title, band in bands.items())
            yield Line(f"Instrument noise (A/A{which}){where}: {noise}", "muted")


# Sections of the A/B report


def _changes(material: Material) -> Iterator[Table]:
    def names(cell: Cell, arm: ArmInfo) -> Names:
        found = ({"cell": cell.name} if material.several_cells else {}) | {"arm": arm.name}
        return found | ({"against": material.reference_of(arm.name)} if len(material.references) > 1 else {})

    others = [arm for arm in material.arms if arm.name not in material.references]
    for metric in material.metrics:
        yield metric_table(material, metric, _COMPARED_BY, arms=material.arms)
        if others:
            title = f"{metric.title} against {listed(material.references)}"
            columns = partial(_comparison, material, metric)
            yield arm_table(material, title, columns, names=names, arms=others)


def _comparison(material: Material, metric: RequestMetric, cell: Cell, arm: ArmInfo) -> Columns:
    found = material.comparison(cell.name, arm.name, metric.name)
    if found is None:
        return {}
    smallest = found.verdict.smallest_effect
    tone = tone_of(found, band_of(material, cell.name, arm.name, metric.name))
    return {
        "pairs": number(found.pairs),
        "typical change": ratio(found.typical),
        "change of p50": ratio(found.quantiles.get(0.5)),
        "change of p95": ratio(found.quantiles.get(0.95)),
        "verdict": Entry(verdict_word(found, metric) + (" (A/A)" if found.copy else ""), tone),
        "could have shown": NOTHING if smallest is None else Entry(f"±{percent(smallest)}"),
        "more pairs": number(found.verdict.more_pairs),
    }


def _phases(material: Material) -> Table:
    """Return where the time of each arm's requests went."""
    found = {(cell.name, each.arm): each for cell in material.valid_cells for each in material.phases(cell.name)}

    def columns(cell: Cell, arm: ArmInfo) -> Columns:
        own = found.get((cell.name, arm.name))
        if own is None:
            return {}
        spent = {title: number(own.milliseconds.get(key), "ms") for key, title in TITLES.items()}
        return {"n": number(own.n), **spent, "API end-to-end": number(own.total_ms, "ms")}

    notes = () if found else ("No request left the stamps that would say so.",)
    return arm_table(material, "Mean time in each phase (ms)", columns, notes=notes)


def _attributions(material: Material) -> Iterator[Section]:
    """Return what each play contributes, where the run took plays away one by one or added them."""
    if material.findings.attributions:
        tables = tuple(_attribution(material, each) for each in material.findings.attributions)
        yield Section(title="Which play brings what", parts=tables)


def _attribution(material: Material, found: Attribution) -> Table:
    metric = metric_named(found.metric)
    refused = material.refused_attribution(found.cell)
    low, high = found.total.low, found.total.high
    # Parts of a whole that may as well be nothing say nothing.
    whole = None if low is not None and high is not None and low <= 0 <= high else found.total.value
    rows: list[tuple[Names, Columns, str | None]] = []
    for each in found.shares:
        parts = {"alone": each.alone, "last": each.last, "share": each.share}
        columns = {name: estimate(part, metric.unit, signed=True) for name, part in parts.items()}
        columns["of the whole"] = share(each.share.value / whole if whole else None)
        rows.append(({"play": play_name(each.play, found)}, columns, refused))
    notes = []
    if not refused:
        total = estimate(found.total, metric.unit, signed=True)
        rows.append(({"play": "all together"}, {"share": total, "of the whole": share(1.0 if whole else None)}, None))
        notes = [f"Interaction: {interval(found.interaction, metric.unit, signed=True)} {metric.unit}."]
    where = f", {found.cell}" if material.several_cells else ""
    return table(f"{metric.title}: each play's part of the change{where} ({metric.unit})", rows, notes=notes)


def play_name(play: str, attribution: Attribution) -> str:
    """Return a play's name without its settings, where no other play of the attribution has the same."""
    names = [each.play.split("(")[0] for each in attribution.shares]
    short = play.split("(", maxsplit=1)[0]
    return short if names.count(short) == 1 else play


def _cold(material: Material) -> Iterator[Section]:
    """Return the very first requests, which are in no other figure."""
    rows: list[tuple[Names, Columns, str | None]] = []
    for each in material.findings.cold:
        cold, warm = each.time_to_first_token_ms, each.warm_time_to_first_token_ms
        columns = {
            "time to first token": number(cold, "ms"),
            "warm": number(warm, "ms"),
            "cold against warm": Entry(change(cold / warm)) if cold and warm else NOTHING,
            "API end-to-end": number(each.api_end_to_end_ms, "ms"),
            "error": Entry(each.error, "bad") if each.error else NOTHING,
        }
        rows.append(({"arm": each.arm}, columns, material.refused_run()))
    if rows:
        shown = table("The very first request of each arm's process (ms)", rows, notes=(_COLD,))
        yield Section(title="Cold first requests", parts=(shown,))


def _work(material: Material) -> Table:
    """Return what each arm's requests took: connections, bytes, tokens, errors."""

    def columns(cell: Cell, arm: ArmInfo) -> Columns:
        sent = material.sent(cell.name, arm.name)
        given, cached = total_of(sent, "input_tokens"), total_of(sent, "cached_tokens")
        return {
            "requests": number(len(sent)),
            "failed": errors(sum(each.error is not None for each in sent)),
            "opened a connection": number(connections(material, sent), missing=UNKNOWN),
            "body bytes sent": number(bytes_sent(material, sent), "bytes", UNKNOWN),
            "input tokens": number(given, "tokens", UNKNOWN),
            "read from cache": share(None if cached is None or not given else cached / given, UNKNOWN),
            "output tokens": number(total_of(sent, "output_tokens"), "tokens", UNKNOWN),
            "price (US$)": number(total_of(sent, "price"), "US$", UNKNOWN),
        }

    made = arm_table(material, "Requests, connections, bytes and tokens", columns, arms=material.arms)
    return replace(made, notes=(*_errors(material), *made.notes))


def connections(material: Material, sent: Sequence[Sample]) -> int | None:
    """Return how many of the requests opened a connection; None where it is not known."""
    openers = material.recorded.openers(sent)
    return None if openers is None else len(openers)


def bytes_sent(material: Material, sent: Sequence[Sample]) -> float | None:
    """Return the bytes of all requests' bodies, by the provider's log or else by the client's record."""
    if material.recorded.log is None:
        return _total([sample.request_bytes for sample in sent])
    tags = {sample.tag for sample in sent}
    return sum(entry.bytes_in for entry in material.recorded.log if entry.tag in tags)


def total_of(sent: Sequence[Sample], name: str) -> float | None:
    """Return the sum of one field of the requests that succeeded; None where any of them does not have it."""
    return _total([getattr(sample, name) for sample in sent if sample.error is None])


def _total(values: Sequence[float | None]) -> float | None:
    # A sum of some would pass for the sum of all.
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _errors(material: Material) -> Iterator[str]:
    for cell in material.valid_cells:
        found = material.found(cell.name)
        where = f"{cell.name}, " if material.several_cells else ""
        for arm, counts in found.errors.items():
            if counts:
                failed = listed(f"{count:,} with {error}" for error, count in counts.items())
                yield f"{where}{arm}: of {counted(found.requests.get(arm, 0), 'request')} failed {failed}."


# Sections of the sweep


def efficiency(material: Material, cell: Cell, arm: str) -> Interval | None:
    """Return a cell's decode speed as a share of that at the fewest users, with the worst and best of both intervals.

    None where those have no valid figure, for no other may stand in for them.
    """
    base = _cells(material, scenario_of(cell))[0]
    top, bottom = (_median(material, each, arm, "decode_speed") for each in (cell, base))
    if top is None or bottom is None or not bottom.value:
        return None
    if cell is base:
        return Interval(value=1.0)
    return Interval(
        value=top.value / bottom.value,
        low=top.low / bottom.high if top.low is not None and bottom.high else None,
        high=top.high / bottom.low if top.high is not None and bottom.low else None,
    )


def _median(material: Material, cell: Cell, arm: str, metric: str) -> Interval | None:
    found = material.figures(cell.name, arm, metric)
    return found.quantiles[0.5].interval if found is not None else None


def _cells(material: Material, scenario: str) -> tuple[Cell, ...]:
    return tuple(cell for cell in material.cells if scenario_of(cell) == scenario)


def _load(cell: Cell) -> Names:
    return {"blocks/s": f"{cell.rate or 0:g}"} if cell.load == "open" else {"users": f"{cell.users or 0:g}"}


def _pace(material: Material) -> Table:
    """Return one user's pace in every cell: medians, how a stream feels, scaling efficiency."""

    def columns(cell: Cell, arm: ArmInfo) -> Columns:
        found = material.found(cell.name)
        shown = {
            "requests": number(found.requests.get(arm.name, 0)),
            "failed": errors(sum(found.errors.get(arm.name, {}).values())),
        }
        for metric in map(metric_named, _PACE):
            middle = _median(material, cell, arm.name, metric.name)
            shown[f"{lowered(metric.title)} ({metric.unit})"] = number(middle.value if middle else None, metric.unit)
        latency = _median(material, cell, arm.name, "inter_token_latency")
        scaling = efficiency(material, cell, arm.name)
        shown["feels"] = _feels(latency.value) if latency else NOTHING
        shown["scaling efficiency"] = share(scaling.value if scaling else None)
        if scaling and scaling.low is not None and scaling.high is not None:
            bounds = f"[{percent(scaling.low)[:-2]}, {percent(scaling.high)[:-2]}]"
            shown["scaling efficiency"] = Entry(f"{percent(scaling.value)} {bounds}")
        return shown | {"of the arm (tokens/s)": number(found.throughput.get(arm.name), "tokens/s")}

    return arm_table(
        material,
        "Pace of each user, p50",
        columns,
        names=lambda cell, arm: {"scenario": scenario_of(cell), **_load(cell), "arm": arm.name},
        notes=(
            f"Instant below {INSTANT_MS:g} ms between tokens, acceptable to {SLUGGISH_MS:g} ms, sluggish above.",
            "Scaling efficiency: of the decode speed at the fewest users.",
            "Of the arm: output tokens over the seconds in which it had requests in flight; arms share the users.",
        ),
    )


def _feels(latency_ms: float) -> Entry:
    if latency_ms < INSTANT_MS:
        return Entry("instant", "good")
    return Entry("acceptable") if latency_ms <= SLUGGISH_MS else Entry("sluggish", "bad")


def _scenario(material: Material, scenario: str) -> Section:
    cells = _cells(material, scenario)
    parts: list[Line | Table] = [_token_counts(material, cells)]
    if any(cell.caching_forbidden for cell in cells):
        parts.append(
            Line(
                "Cache prevention: every prompt is unique from its first line on, so that no provider can read it from "
                "a cache. Whether it did so all the same is among the checks."
            )
        )

    def names(cell: Cell, arm: ArmInfo) -> Names:
        return {**_load(cell), "arm": arm.name}

    parts += [metric_table(material, metric_named(name), _SWEPT_BY, names=names, cells=cells) for name in _SWEPT]
    return Section(title=scenario, parts=tuple(parts))


def _token_counts(material: Material, cells: Sequence[Cell]) -> Table:
    """Return range, mean and deviation of a scenario's input and output tokens, meant and seen."""
    sent = [sample for cell in cells for sample in material.recorded.measured(cell.name)]
    seen = [each for each in sent if each.error is None and not material.refused(each.cell, each.arm)]
    rows: list[tuple[Names, Columns, str | None]] = []
    for name, samples, field in (
        ("input, as meant", sent, "meant_input_tokens"),
        ("output, at least", sent, "least_output_tokens"),
        ("output, at most", sent, "asked_output_tokens"),
        ("input, as seen", seen, "input_tokens"),
        ("output, as seen", seen, "output_tokens"),
    ):
        values = [value for sample in samples if (value := getattr(sample, field)) is not None]
        columns = {}
        if values:
            spread = f" ± {figure(stdev(values))}" if len(values) > 1 else ""
            mean = Entry(f"{figure(fmean(values))}{spread}")
            columns = {"lowest": number(min(values)), "highest": number(max(values)), "mean ± deviation": mean}
        rows.append(({"tokens": name}, columns, material.refused_all(cells) if samples is seen else None))
    note = "As seen: of the requests that succeeded in valid cells, by the provider's usage."
    return table("Test configuration", rows, notes=(note,))
