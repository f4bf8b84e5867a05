"""The reports of a run: arms beside each other, and figures by load and by length; and of two runs, unpaired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Final, Literal

from .. import _formatting as words
from ..checks import Checked
from ..findings import ArmComparison, Attribution, Findings
from ..recorded import ArmInfo, Cell, Header, RecordedRun, RequestMetric, Sample, metric_named
from . import _tables as t
from ._material import TITLES, Material
from ._tables import NOTHING, UNKNOWN, Columns, Entry, Line, Names, ReportTable, Row, RunReport, Section, Tone, number

INSTANT_MS: Final = 20.0
"""Below this inter-token latency a stream feels instant: the boundary of a published H200 report."""
SLUGGISH_MS: Final = 70.0
"""Above this one it feels sluggish: the same."""
UNPAIRED: Final = "Unpaired: drift between the runs is not controlled."
_COLD: Final = (
    "One request each, in no other figure: imports, connection and caches are cold, and what a client imports and "
    "makes on its first call is inside. Warm: the same prompt, sent once more to warm up. Making the client is outside."
)
_UNIQUE: Final = (
    "Cache prevention: every prompt is unique from its first line on, so that no provider can read it from a cache. "
    "Whether it did so all the same is among the checks."
)
_PACE: Final = ("decode_speed", "inter_token_latency", "time_to_first_token")
_SWEPT: Final = (
    "time_to_first_token", "time_per_output_token", "inter_token_latency", "generation_time", "api_end_to_end",
    "decode_speed", "output_throughput",
)  # fmt: skip
_COMPARED_BY: Final[tuple[t.Statistic, ...]] = ("n", "failed", "mean", "p50", "p90", "p95", "p99")
_SWEPT_BY: Final[tuple[t.Statistic, ...]] = (
    "n", "failed", "mean", "deviation", "CV", "min", "p25", "p50", "p75", "p95", "p99", "max",
)  # fmt: skip


def ab_report(material: Material) -> RunReport:
    metrics = words.listed([words.lowered(metric.title) for metric in material.metrics])
    others = words.listed([arm.name for arm in material.compared_arms], "or") or "a copy of it"
    against = words.listed(material.references) + (", each its counterpart" if len(material.references) > 1 else "")
    plays = tuple(_attribution(material, each) for each in material.findings.attributions)
    sections = [
        Section(title="What changed", parts=tuple(_changes(material))),
        Section(title="Where the time goes", parts=(_phases(material),)),
        *([Section(title="Which play brings what", parts=plays)] if plays else ()),
        *_cold(material),
        Section(title="What it took", parts=(_work(material),)),
    ]
    question = f"Does {others} change {metrics} against {against}, and by how much?"
    return _report("ab", material, question, tuple(_verdicts(material)), sections, material.metrics)


def sweep_report(material: Material) -> RunReport:
    """Return the report by users or rate, and by length of input and output."""
    sections = [
        Section(title="All cells", parts=(_pace(material),)),
        *(_scenario(material, name) for name in material.scenarios if _cells(material, name)),
        *_cold(material),
    ]
    question = "How do times and speeds change with the load, and with the lengths of inputs and outputs?"
    return _report("sweep", material, question, (), sections, [metric_named(name) for name in _SWEPT])


# What every report has


def _report(
    kind: Literal["ab", "sweep"],
    material: Material,
    question: str,
    verdicts: Sequence[Line],
    sections: Sequence[Section],
    metrics: Sequence[RequestMetric],
) -> RunReport:
    """Return a report. `verdicts` and `sections` are of valid figures, and left out if the run has none."""
    valid = material.refused_all() is None
    return RunReport(
        kind=kind,
        title=f"{'A/B' if kind == 'ab' else 'Sweep'}: {material.recorded.header.name}",
        question=question,
        verdicts=(*_refusals(material), *(verdicts if valid else ()), *_flags(material)),
        facts=tuple(_facts(material)),
        sections=(*(sections if valid else ()), _checks(material), _definitions(metrics)),
    )


def _checks(material: Material, title: str = "Checks") -> Section:
    results = material.checked.results
    levels = [f"{count} {level}" for level, count in Counter(each.level for each in results).items()]
    said = f"{words.listed(levels) or 'No check was made of this run'}."
    return Section(title=title, parts=(Line(said),), checks=results)


def _definitions(metrics: Iterator[RequestMetric] | Sequence[RequestMetric]) -> Section:
    rows = [(metric.title, metric.meaning) for metric in metrics]
    rows.append(("Brackets", "95 % confidence intervals. Failed requests count as slower than all others."))
    made = t.table("Metrics", [({"metric": title, "meaning": meaning}, {}, None) for title, meaning in rows])
    return Section(title="Definitions", parts=(made,))


def _refusals(material: Material) -> Iterator[Line]:
    if material.refused_all() is not None:
        sentences = "; ".join(f"{check}: {why.removesuffix('.')}" for check, why in material.refusals().items())
        yield Line(f"Refused: no figure of this run may be used. {sentences}. See Checks.", "bad")
        return
    places: dict[str, list[str]] = {}
    for cell in material.cells:
        if refused := material.refused(cell.name):
            places.setdefault(refused, []).append(cell.name)
            continue
        for arm in material.arms:
            if refused := material.refused(cell.name, arm.name):
                places.setdefault(refused, []).append(f"{cell.name}, {arm.name}")
    for refused, names in places.items():
        yield Line(f"{' | '.join(names)}: {refused}; see Checks.", "bad")


def _flags(material: Material) -> Iterator[Line]:
    if material.recorded.ended == "interrupted":
        yield Line("Interrupted: the figures are of what was finished until then.", "warning")
    if flagged := list(dict.fromkeys(each.check for each in material.checked.results if each.level == "flagged")):
        yield Line(f"Flagged: {words.listed(flagged)}; see Checks.", "warning")


def _facts(material: Material) -> Iterator[tuple[str, str]]:
    recorded, header = material.recorded, material.recorded.header
    workload = "; ".join(material.scenarios) or header.workload
    yield "Provider", header.provider if header.embedded else f"{header.provider}, model {header.model}"
    yield "Workload", f"{workload} ({header.workload_source})" if header.workload_source else workload
    yield from (("", note) for note in dict.fromkeys(header.workload_notes))
    several = len(material.references) > 1
    roles = {"reference": f", {'a' if several else 'the'} reference", "again": "", "arm": ""}
    for at, arm in enumerate(material.arms):
        role = f", against {material.reference_of(arm.name)}" if several and arm.role == "arm" else roles[arm.role]
        yield "" if at else "Arms", f"{arm.name}: {arm.description}{role}"
    yield (
        "Load",
        f"{_load_words(material)}; {words.counted(material.blocks, 'block')}, each with one request of every arm",
    )
    counts = Counter(sample.part for sample in recorded.samples)
    yield "Requests", f"{counts['measured']:,} measured, {counts['warm-up']:,} to warm up, {counts['cold']:,} cold"
    seed = header.settings.get("seed")
    ended = f"{words.figure(recorded.duration_s)} s, ended: {recorded.ended}"
    yield "Run", ended if seed is None else f"{ended}; seed {seed}"
    yield "Machine", _machine(header)
    yield "Started", header.started_at or "not known"


def _machine(header: Header) -> str:
    return ", ".join(f"{key} {value}" for key, value in header.machine.items() if key != "packages")


def _load_words(material: Material) -> str:
    """Return the load in words: "closed, 1, 4 and 8 users in turn, 0.1 s between blocks"."""
    cells = material.recorded.header.cells
    if any(cell.load == "open" for cell in cells):
        rates = words.listed(dict.fromkeys(f"{cell.rate:g}" for cell in cells if cell.rate is not None))
        return f"open, {rates} blocks a second"
    users = sorted({cell.users for cell in cells if cell.users is not None})
    said = f"closed, {words.listed(map(str, users))} {'user' if users == [1] else 'users'}"
    said += " in turn" if len(users) > 1 else ""
    arms = len(material.arms)
    if arms > 1 and users:
        each = words.listed(f"{count / arms:.2g}" for count in users)
        said += f" shared by {arms} arms: an arm has {each} requests in flight in the mean"
    think_s = (material.recorded.header.settings.get("load") or {}).get("think_s")
    return said + (f", {think_s:g} s between blocks" if think_s else "")


# Verdicts


def band_of(material: Material, cell: str, arm: str, metric: str) -> float | None:
    """Return by how much, as a share, the copy of an arm's reference may differ from it; None if not known."""
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
    return {"better": metric.words[0], "worse": metric.words[1]}.get(comparison.verdict.kind, comparison.verdict.kind)


def verdict_sentence(who: str, comparison: ArmComparison, metric: RequestMetric, band: float | None) -> str:
    """Return a comparison in words: "encoding: time to first token faster by 31 % [27, 35], 240 pairs"."""
    colon = ":" if comparison.verdict.kind in ("no difference shown", "too few pairs") else ""
    pairs = words.counted(comparison.pairs, "pair")
    ending = f", {pairs}" if comparison.verdict.kind in ("better", "worse") else f" ({pairs})"
    if _within(comparison, band):
        ending += f"; no more than the instrument's own noise of ±{words.percent(band or 0.0)}"
    return f"{who}: {words.lowered(metric.title)}{colon} {comparison.verdict.sentence}{ending}"


def _verdicts(material: Material) -> Iterator[Line]:
    for arm in material.compared_arms:
        who = f"{arm.name} against {material.reference_of(arm.name)}" if len(material.references) > 1 else arm.name
        for metric in material.metrics:
            found = [
                (each, band_of(material, cell.name, arm.name, metric.name))
                for cell in material.valid_cells
                if (each := material.comparison(cell.name, arm.name, metric.name)) is not None
            ]
            tones = {tone_of(each, band) for each, band in found}
            tone = tones.pop() if len(tones) == 1 else "plain"
            if found and material.several_cells:
                kinds = [verdict_word(each, metric) for each, _ in found]
                counts = words.listed(f"{word} in {kinds.count(word)}" for word in dict.fromkeys(kinds))
                of_cells = words.counted(len(found), "cell")
                yield Line(f"{who}: {words.lowered(metric.title)} {counts} of {of_cells}", tone)
            elif found:
                yield Line(verdict_sentence(who, found[0][0], metric, found[0][1]), tone)


# Sections of the A/B report


def _changes(material: Material) -> Iterator[ReportTable]:
    def names(cell: Cell, arm: ArmInfo) -> Names:
        found = ({"cell": cell.name} if material.several_cells else {}) | {"arm": arm.name}
        return found | ({"against": material.reference_of(arm.name)} if len(material.references) > 1 else {})

    others = [arm for arm in material.arms if arm.name not in material.references]
    for metric in material.metrics:

        def columns(cell: Cell, arm: ArmInfo, metric: RequestMetric = metric) -> Columns:
            return _comparison(material, metric, cell, arm)

        yield t.metric_table(material, metric, _COMPARED_BY, arms=material.arms)
        if others:
            title = f"{metric.title} against {words.listed(material.references)}"
            yield t.arm_table(material, title, columns, names=names, arms=others)


def _comparison(material: Material, metric: RequestMetric, cell: Cell, arm: ArmInfo) -> Columns:
    found = material.comparison(cell.name, arm.name, metric.name)
    if found is None:
        return {}
    smallest = found.verdict.smallest_effect
    changes = {"typical change": found.typical} | {
        f"change of {words.percentile_name(share)}": found.quantiles.get(share) for share in (0.5, 0.95)
    }
    tone = tone_of(found, band_of(material, cell.name, arm.name, metric.name))
    return {
        "pairs": number(found.pairs),
        **{name: Entry(words.change_with_interval(each)) if each else NOTHING for name, each in changes.items()},
        "verdict": Entry(verdict_word(found, metric) + (" (A/A)" if found.copy else ""), tone),
        "could have shown": NOTHING if smallest is None else Entry(f"±{words.percent(smallest)}"),
        "more pairs": number(found.verdict.more_pairs),
    }


def _phases(material: Material) -> ReportTable:
    found = {(cell.name, each.arm): each for cell in material.valid_cells for each in material.phases(cell.name)}

    def columns(cell: Cell, arm: ArmInfo) -> Columns:
        own = found.get((cell.name, arm.name))
        if own is None:
            return {}
        spent = {title: number(own.milliseconds.get(key), "ms") for key, title in TITLES.items()}
        return {"n": number(own.n), **spent, "API end-to-end": number(own.total_ms, "ms")}

    notes = () if found else ("No request left the stamps that would say so.",)
    return t.arm_table(material, "Mean time in each phase (ms)", columns, notes=notes)


def _attribution(material: Material, found: Attribution) -> ReportTable:
    metric = metric_named(found.metric)
    refused = material.refused_attribution(found.cell)
    low, high = found.total.low, found.total.high
    # Parts of a whole that may as well be nothing say nothing.
    whole = None if low is not None and high is not None and low <= 0 <= high else found.total.value
    rows: list[Row] = []
    for each in found.shares:
        parts = {"alone": each.alone, "last": each.last, "share": each.share}
        columns = {name: t.estimate(part, metric.unit, signed=True) for name, part in parts.items()}
        columns["of the whole"] = t.share(each.share.value / whole if whole else None)
        rows.append(({"play": play_name(each.play, found)}, columns, refused))
    notes = []
    if not refused:
        total = t.estimate(found.total, metric.unit, signed=True)
        rows.append(({"play": "all together"}, {"share": total, "of the whole": t.share(1.0 if whole else None)}, None))
        notes = [f"Interaction: {words.interval(found.interaction, metric.unit, signed=True)} {metric.unit}."]
    where = f", {found.cell}" if material.several_cells else ""
    return t.table(f"{metric.title}: each play's part of the change{where} ({metric.unit})", rows, notes=notes)


def play_name(play: str, attribution: Attribution) -> str:
    """Return a play's name without its settings, where no other play of the attribution has the same."""
    names = [each.play.split("(")[0] for each in attribution.shares]
    short = play.split("(", maxsplit=1)[0]
    return short if names.count(short) == 1 else play


def _cold(material: Material) -> Iterator[Section]:
    rows: list[Row] = []
    for each in material.findings.cold:
        cold, warm = each.time_to_first_token_ms, each.warm_time_to_first_token_ms
        columns = {
            "time to first token": number(cold, "ms"),
            "warm": number(warm, "ms"),
            "cold against warm": Entry(words.change(cold / warm)) if cold and warm else NOTHING,
            "API end-to-end": number(each.api_end_to_end_ms, "ms"),
            "error": Entry(each.error, "bad") if each.error else NOTHING,
        }
        rows.append(({"arm": each.arm}, columns, material.refused_run()))
    if rows:
        shown = t.table("The very first request of each arm's process (ms)", rows, notes=(_COLD,))
        yield Section(title="Cold first requests", parts=(shown,))


def _work(material: Material) -> ReportTable:

    def columns(cell: Cell, arm: ArmInfo) -> Columns:
        sent = material.sent(cell.name, arm.name)
        taken = taken_by(material.recorded, sent)
        given, cached = taken["input_tokens"], taken["cached_tokens"]
        return {
            "requests": number(len(sent)),
            "failed": t.errors(sum(each.error is not None for each in sent)),
            "opened a connection": number(taken["connections_opened"], missing=UNKNOWN),
            "body bytes sent": number(taken["bytes_sent"], "bytes", UNKNOWN),
            "input tokens": number(given, "tokens", UNKNOWN),
            "read from cache": t.share(None if cached is None or not given else cached / given, UNKNOWN),
            "output tokens": number(taken["output_tokens"], "tokens", UNKNOWN),
            "price (US$)": number(taken["price"], "US$", UNKNOWN),
        }

    made = t.arm_table(material, "Requests, connections, bytes and tokens", columns, arms=material.arms)
    return replace(made, notes=(*_errors(material), *made.notes))


def taken_by(recorded: RecordedRun, sent: Sequence[Sample]) -> dict[str, float | None]:
    """Return what requests took: connections, bytes by the provider's log or else by the client's record, tokens, US$.

    Tokens and price are of those that succeeded. None for what is not known of each.
    """
    answered, tags = [sample for sample in sent if sample.error is None], {sample.tag for sample in sent}
    fields = ("input_tokens", "cached_tokens", "output_tokens", "price")
    size = _total([sample.request_bytes for sample in sent])
    if recorded.log is not None:
        size = sum(entry.bytes_in for entry in recorded.log if entry.tag in tags)
    return {
        "connections_opened": recorded.connections_opened(sent),
        "bytes_sent": size,
        **{name: _total([getattr(sample, name) for sample in answered]) for name in fields},
    }


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
                failed = words.listed(f"{count:,} with {error}" for error, count in counts.items())
                yield f"{where}{arm}: of {words.counted(found.requests.get(arm, 0), 'request')} failed {failed}."


# Sections of the sweep


def _efficiency(material: Material, cell: Cell, arm: str) -> Entry:
    """Return a cell's decode speed as a share of that at the fewest users, with the worst and best of both."""
    base = _cells(material, cell.workload)[0]
    top, bottom = (material.median(each.name, arm, "decode_speed") for each in (cell, base))
    if top is None or bottom is None or not bottom.value:
        return NOTHING
    said = words.percent(top.value / bottom.value)
    if cell is not base and top.low is not None and top.high is not None and bottom.low and bottom.high:
        said += f" [{words.percent(top.low / bottom.high)[:-2]}, {words.percent(top.high / bottom.low)[:-2]}]"
    return Entry(said)


def _cells(material: Material, scenario: str) -> tuple[Cell, ...]:
    return tuple(cell for cell in material.cells if cell.workload == scenario)


def _load(cell: Cell) -> Names:
    return {"blocks/s": f"{cell.rate or 0:g}"} if cell.load == "open" else {"users": f"{cell.users or 0:g}"}


def _pace(material: Material) -> ReportTable:

    def columns(cell: Cell, arm: ArmInfo) -> Columns:
        found = material.found(cell.name)
        failed = t.errors(sum(found.errors.get(arm.name, {}).values()))
        shown = {"requests": number(found.requests.get(arm.name, 0)), "failed": failed}
        for metric in map(metric_named, _PACE):
            middle = material.median(cell.name, arm.name, metric.name)
            name = f"{words.lowered(metric.title)} ({metric.unit})"
            shown[name] = number(middle.value if middle else None, metric.unit)
        latency = material.median(cell.name, arm.name, "inter_token_latency")
        shown["feels"] = Entry("acceptable") if latency else NOTHING
        if latency and latency.value < INSTANT_MS:
            shown["feels"] = Entry("instant", "good")
        elif latency and latency.value > SLUGGISH_MS:
            shown["feels"] = Entry("sluggish", "bad")
        shown["scaling efficiency"] = _efficiency(material, cell, arm.name)
        return shown | {"of the arm (tokens/s)": number(found.throughput.get(arm.name), "tokens/s")}

    return t.arm_table(
        material,
        "Pace of each user, p50",
        columns,
        names=lambda cell, arm: {"scenario": cell.workload, **_load(cell), "arm": arm.name},
        notes=(
            f"Instant below {INSTANT_MS:g} ms between tokens, acceptable to {SLUGGISH_MS:g} ms, sluggish above.",
            "Scaling efficiency: of the decode speed at the fewest users.",
            "Of the arm: output tokens over the seconds in which it had requests in flight; arms share the users.",
        ),
    )


def _scenario(material: Material, scenario: str) -> Section:
    def names(cell: Cell, arm: ArmInfo) -> Names:
        return {**_load(cell), "arm": arm.name}

    cells = _cells(material, scenario)
    parts: list[Line | ReportTable] = [_token_counts(material, cells)]
    parts += [Line(_UNIQUE)] if any(cell.caching_forbidden for cell in cells) else []
    parts += [t.metric_table(material, metric_named(name), _SWEPT_BY, names=names, cells=cells) for name in _SWEPT]
    return Section(title=scenario, parts=tuple(parts))


def _token_counts(material: Material, cells: Sequence[Cell]) -> ReportTable:
    """Return range, mean and deviation of a scenario's input and output tokens, meant and seen."""
    sent = [sample for cell in cells for sample in material.recorded.measured(cell.name)]
    seen = [each for each in sent if each.error is None and not material.refused(each.cell, each.arm)]
    rows: list[Row] = []
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
            spread = f" ± {words.figure(stdev(values))}" if len(values) > 1 else ""
            mean = Entry(f"{words.figure(fmean(values))}{spread}")
            columns = {"lowest": number(min(values)), "highest": number(max(values)), "mean ± deviation": mean}
        rows.append(({"tokens": name}, columns, material.refused_all(cells) if samples is seen else None))
    note = "As seen: of the requests that succeeded in valid cells, by the provider's usage."
    return t.table("Test configuration", rows, notes=(note,))


# Two runs


def compare(
    first: RecordedRun,
    second: RecordedRun,
    *,
    findings: tuple[Findings, Findings],
    checked: tuple[Checked, Checked],
    names: tuple[str, str] = ("first", "second"),
) -> RunReport:
    """Return the figures of two runs beside each other, without verdicts: nothing controlled what changed."""
    if names[0] == names[1]:
        names = (f"{names[0]} (first)", f"{names[1]} (second)")
    runs = [
        (name, Material(recorded=recorded, findings=found, checked=results))
        for name, recorded, found, results in zip(names, (first, second), findings, checked, strict=True)
    ]
    places, others = ([(cell.name, arm.name) for cell in run.cells for arm in run.own_arms] for _, run in runs)
    places = [place for place in places if place in others]
    metrics = [metric_named(name) for name in first.header.metrics if name in second.header.metrics]
    parts: list[Line | ReportTable] = [Line(f"{UNPAIRED} No difference below is a verdict.", "warning")]
    if differing := list(_differing(first.header, second.header, names)):
        parts.append(Line(f"The runs differ in more than time: {'; '.join(differing)}.", "warning"))
    if places:
        parts += [_unpaired(runs, metric, places) for metric in metrics]
    else:
        parts.append(Line("They have no cell and arm in common: there is nothing to put beside each other."))
    return RunReport(
        kind="compare",
        title=f"Two runs: {first.header.name} and {second.header.name}",
        question=f"What does {names[1]} show beside {names[0]}?",
        verdicts=(Line(UNPAIRED, "warning"),),
        facts=tuple((name, _run_words(run.recorded)) for name, run in runs),
        sections=(
            Section(title="Figures", parts=tuple(parts)),
            *(_checks(run, f"Checks of {name}") for name, run in runs),
            _definitions(metrics),
        ),
    )


def _run_words(run: RecordedRun) -> str:
    header = run.header
    started = f"started {header.started_at or 'not known'}, {run.ended}"
    return f"{header.name}; {header.provider}, model {header.model}; {started}; {_machine(header)}"


def _differing(first: Header, second: Header, names: tuple[str, str]) -> Iterator[str]:
    for what in ("provider", "model", "workload", "one_way_s"):
        before, after = getattr(first, what), getattr(second, what)
        if before != after:
            yield f"{what.removesuffix('_s').replace('_', ' ')} ({names[0]}: {before}, {names[1]}: {after})"
    for what, ours, theirs in (
        ("setting", first.settings, second.settings),
        ("machine's", first.machine, second.machine),
    ):
        if keys := [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]:
            yield f"{what} {words.listed(key.replace('_', ' ') for key in keys)}"


def _unpaired(
    runs: Sequence[tuple[str, Material]], metric: RequestMetric, places: Sequence[tuple[str, str]]
) -> ReportTable:
    rows: list[Row] = []
    for cell, arm in places:
        refused = [f"{name}: {why}" for name, run in runs if (why := run.refused(cell, arm))]
        found = [(name, run.figures(cell, arm, metric.name)) for name, run in runs]
        columns = {f"n, {name}": number(each.n if each else None) for name, each in found}
        for share, shown in ((0.5, "p50"), (0.95, "p95")):
            both = [(name, each.quantiles.get(share) if each else None) for name, each in found]
            columns |= {f"{shown}, {name}": t.percentile(each, metric.unit) for name, each in both}
            values = [each.value for _, each in both if each is not None and each.value is not None]
            difference = words.signed_figure(values[1] - values[0], metric.unit) if len(values) > 1 else None
            columns[f"difference of {shown}"] = Entry(difference) if difference else NOTHING
        rows.append(({"cell": cell, "arm": arm}, columns, refused[0] if refused else None))
    return t.table(f"{metric.title}, unpaired ({metric.unit})", rows, notes=(UNPAIRED,))
