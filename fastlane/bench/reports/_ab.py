"""The report that puts arms beside each other: which is faster, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from .._formatting import (
    change,
    counted,
    figure,
    interval,
    listed,
    lowered,
    percent,
    percentile_name,
)
from ..checks import CONNECTIONS
from ..findings import ArmComparison, Attribution
from ..recorded import ArmInfo, Cell, RequestMetric, Sample, metric_named
from ._material import TITLES, Material
from ._tables import (
    NOTHING,
    UNKNOWN,
    Entry,
    Line,
    RunReport,
    Section,
    Table,
    Tone,
    arm_table,
    compose,
    errors,
    estimate,
    metric_table,
    named_row,
    number,
    ratio,
    share,
    without_empty,
)

_RATIO_SHARES: Final = (0.5, 0.95)
_COLD: Final = (
    "One request each, in no other figure: imports, connection and caches are cold. Warm: the same prompt, sent once "
    "more to warm up. Making the client is outside."
)


def ab_report(material: Material) -> RunReport:
    """Return the report of arms beside each other."""
    names = listed([lowered(metric.title) for metric in material.metrics])
    others = listed([arm.name for arm in material.compared_arms], "or") or "a copy of it"
    against = material.references + (", each its counterpart" if material.several_references else "")
    return compose(
        material,
        "ab",
        title="A/B",
        question=f"Does {others} change {names} against {against}, and by how much?",
        verdicts=[*_verdicts(material), *_instrument(material), *_reopened(material)],
        sections=[
            Section(title="What changed", parts=tuple(_changes(material))),
            Section(title="Where the time goes", parts=(_phases(material),)),
            *_attributions(material),
            *cold_section(material),
            Section(title="What it took", parts=(_work(material),)),
        ],
        metrics=material.metrics,
    )


def verdict_sentence(who: str, comparison: ArmComparison, metric: RequestMetric, band: float | None) -> str:
    """Return a comparison in words: "encoding: time to first token faster by 31 % [27, 35], 240 pairs"."""
    shown = comparison.verdict.kind in ("better", "worse")
    colon = ":" if comparison.verdict.kind in ("no difference shown", "too few pairs") else ""
    said = f"{who}: {lowered(metric.title)}{colon} {comparison.verdict.sentence}"
    pairs = counted(comparison.pairs, "pair")
    said += f", {pairs}" if shown else f" ({pairs})"
    if shown and _within(comparison, band):
        said += f"; no more than the instrument's own noise of ±{percent(band or 0.0)}"
    return said


def band_of(material: Material, cell: str, arm: str, metric: str) -> float | None:
    """Return by how much, as a share, the copy of an arm's reference may differ from it; None where not known."""
    again = material.recorded.header.again_of(arm)
    comparison = material.comparison(cell, again.name, metric) if again else None
    if comparison is None or comparison.typical is None:
        return None
    low, high = comparison.typical.low, comparison.typical.high
    return None if low is None or high is None else max(abs(1 - low), abs(high - 1))


def _within(comparison: ArmComparison, band: float | None) -> bool:
    """Whether a change is no larger than what the instrument shows between two arms that are the same."""
    return band is not None and comparison.typical is not None and abs(comparison.typical.value - 1) <= band


def tone_of(comparison: ArmComparison, band: float | None = None) -> Tone:
    """Return how a verdict is meant; a difference that the instrument may have made itself is none to be glad of."""
    if comparison.verdict.kind in ("better", "worse") and _within(comparison, band):
        return "warning"
    tones: dict[str, Tone] = {"better": "good", "worse": "bad", "not comparable": "warning"}
    return tones.get(comparison.verdict.kind, "plain")


def verdict_word(comparison: ArmComparison, metric: RequestMetric) -> str:
    """Return a verdict in a word or two: "faster", "no difference shown"."""
    return {"better": metric.words[0], "worse": metric.words[1]}.get(comparison.verdict.kind, comparison.verdict.kind)


def _verdicts(material: Material) -> Iterator[Line]:
    for arm in material.compared_arms:
        for metric in material.metrics:
            found = [
                (each, band_of(material, cell.name, arm.name, metric.name))
                for cell in material.valid_cells
                if (each := material.comparison(cell.name, arm.name, metric.name)) is not None
            ]
            tones = {tone_of(each, band) for each, band in found}
            if material.several_cells and found:
                words = [verdict_word(each, metric) for each, _ in found]
                said = listed(f"{word} in {words.count(word)}" for word in dict.fromkeys(words))
                text = f"{material.who(arm.name)}: {lowered(metric.title)} {said} of {counted(len(found), 'cell')}"
                yield Line(text, tones.pop() if len(tones) == 1 else "plain")
            elif found:
                yield Line(verdict_sentence(material.who(arm.name), found[0][0], metric, found[0][1]), tones.pop())


def _instrument(material: Material) -> Iterator[Line]:
    if not material.recorded.header.copies:
        yield Line("Instrument noise: not known, for the run had no second copy of the reference (A/A).")
    for reference in material.recorded.header.references if material.recorded.header.copies else ():
        bands = {}
        for metric in material.metrics:
            found = [band_of(material, cell.name, reference.name, metric.name) for cell in material.valid_cells]
            if known := [band for band in found if band is not None]:
                bands[lowered(metric.title)] = max(known)
        if bands:
            which = f", {reference.name}" if material.several_references else ""
            where = ", the widest of its cells" if material.several_cells else ""
            said = ", ".join(f"{title} ±{percent(band)}" for title, band in bands.items())
            yield Line(f"Instrument noise (A/A{which}){where}: {said}", "muted")


def _reopened(material: Material) -> Iterator[Line]:
    """Return how often each reference opened a connection, and why, where the checks flag one of them."""
    references = {arm.name for arm in material.recorded.header.references}
    for cell in material.valid_cells:
        found = [
            each
            for each in material.checked.results
            if (each.check, each.cell) == (CONNECTIONS, cell.name) and each.arm in references
        ]
        if any(each.level == "flagged" for each in found):
            where = f" in {cell.name}" if material.several_cells else ""
            yield Line(f"Connections{where}: {'. '.join(each.sentence for each in found)}.", "warning")


def _changes(material: Material) -> Iterator[Table]:
    header, several = material.recorded.header, material.several_references
    for metric in material.metrics:
        yield metric_table(material, metric, ("n", "failed", "mean", 0.5, 0.9, 0.95, 0.99), arms=material.arms)
        if len(material.arms) > 1:
            yield arm_table(
                material,
                f"{metric.title} against {material.references}",
                (
                    "pairs",
                    "typical change",
                    *(f"change of {percentile_name(share)}" for share in _RATIO_SHARES),
                    "verdict",
                    "could have shown",
                    "more pairs",
                ),
                lambda cell, arm, metric=metric: _comparison(material, cell, arm, metric),  # type: ignore[misc]
                naming=(*material.naming, *(("against",) if several else ())),
                names=lambda cell, arm: (
                    *material.names(cell, arm),
                    *((header.reference_of(arm.name).name,) if several else ()),
                ),
                arms=[arm for arm in material.arms if arm not in header.references],
            )


def _comparison(material: Material, cell: Cell, arm: ArmInfo, metric: RequestMetric) -> Sequence[Entry]:
    found = material.comparison(cell.name, arm.name, metric.name)
    if found is None:
        return (NOTHING,) * (len(_RATIO_SHARES) + 5)
    word = verdict_word(found, metric) + (" (A/A)" if found.copy else "")
    smallest = found.verdict.smallest_effect
    return (
        number(found.pairs),
        ratio(found.typical),
        *(ratio(found.quantiles.get(each)) for each in _RATIO_SHARES),
        Entry(word, tone_of(found, band_of(material, cell.name, arm.name, metric.name))),
        NOTHING if smallest is None else Entry(f"±{percent(smallest)}"),
        number(found.verdict.more_pairs),
    )


def _phases(material: Material) -> Table:
    """Return where the time of each arm's requests went."""
    found = {(cell.name, each.arm): each for cell in material.valid_cells for each in material.phases(cell.name)}

    def figures(cell: Cell, arm: ArmInfo) -> Sequence[Entry]:
        mine = found.get((cell.name, arm.name))
        if mine is None:
            return (NOTHING,) * (len(TITLES) + 2)
        spent = (number(mine.milliseconds.get(key), "ms") for key in TITLES)
        return (number(mine.n), *spent, number(mine.total_ms, "ms"))

    columns = ("n", *TITLES.values(), "API end-to-end")
    notes = () if found else ("No request left the stamps that would say so.",)
    return arm_table(material, "Mean time in each phase (ms)", columns, figures, notes=notes)


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
    rows = [
        named_row(
            (play_name(each.play, found),),
            (
                *(estimate(part, metric.unit, signed=True) for part in (each.alone, each.last, each.share)),
                share(each.share.value / whole if whole else None),
            ),
            refused,
            4,
        )
        for each in found.shares
    ]
    if not refused:
        total = estimate(found.total, metric.unit, signed=True)
        rows.append(named_row(("all together",), (NOTHING, NOTHING, total, share(1.0 if whole else None)), None, 4))
    note = f"Interaction: {interval(found.interaction, metric.unit, signed=True)} {metric.unit}."
    where = f", {found.cell}" if material.several_cells else ""
    return without_empty(
        Table(
            title=f"{metric.title}: each play's part of the change{where} ({metric.unit})",
            columns=("play", "alone", "last", "share", "of the whole"),
            rows=tuple(rows),
            notes=() if refused else (note,),
        )
    )


def play_name(play: str, attribution: Attribution) -> str:
    """Return a play's name without its settings, where no other play of the attribution has the same."""
    names = [each.play.split("(")[0] for each in attribution.shares]
    short = play.split("(", maxsplit=1)[0]
    return short if names.count(short) == 1 else play


def cold_section(material: Material) -> Iterator[Section]:
    """Return the very first requests, which are in no other figure."""
    if not material.findings.cold:
        return
    refused = material.refused_run()
    rows = []
    for each in material.findings.cold:
        cold, warm = each.time_to_first_token_ms, each.warm_time_to_first_token_ms
        figures = (
            number(cold, "ms"),
            number(warm, "ms"),
            Entry(change(cold / warm)) if cold and warm else NOTHING,
            number(each.api_end_to_end_ms, "ms"),
            Entry(each.error, "bad") if each.error else NOTHING,
        )
        rows.append(named_row((each.arm,), figures, refused, len(figures)))
    table = Table(
        title="The very first request of each arm's process (ms)",
        columns=("arm", "time to first token", "warm", "cold against warm", "API end-to-end", "error"),
        rows=tuple(rows),
        notes=(_COLD, *(() if refused else _slower_cold(material))),
    )
    yield Section(title="Cold first requests", parts=(without_empty(table),))


def _slower_cold(material: Material) -> Iterator[str]:
    """Return a sentence for each arm whose first request took longer than its reference's."""
    first = {each.arm: each.time_to_first_token_ms for each in reversed(material.findings.cold)}
    for arm in material.compared_arms:
        reference = material.recorded.header.reference_of(arm.name).name
        ours, theirs = first.get(arm.name), first.get(reference)
        if ours is not None and theirs is not None and ours > theirs:
            yield (
                f"{arm.name}'s first token came {figure(ours - theirs, 'ms')} ms later than {reference}'s: what its "
                "client imports and makes on its first call is inside. One request each, so there is no interval."
            )


def _work(material: Material) -> Table:
    """Return what each arm's requests took: connections, bytes, tokens, errors."""
    columns = "requests", "failed", "opened a connection", "body bytes sent", "input tokens", "read from cache"
    table = arm_table(
        material,
        "Requests, connections, bytes and tokens",
        (*columns, "output tokens", "price (US$)"),
        lambda cell, arm: _taken(material, material.sent(cell.name, arm.name)),
        arms=material.arms,
    )
    return replace(table, notes=(*_errors(material), *table.notes))


def _taken(material: Material, sent: Sequence[Sample]) -> Sequence[Entry]:
    done = [sample for sample in sent if sample.error is None]
    given, cached = (total_of([getattr(each, name) for each in done]) for name in ("input_tokens", "cached_tokens"))
    return (
        number(len(sent)),
        errors(len(sent) - len(done)),
        number(connections(material, sent), missing=UNKNOWN),
        number(bytes_sent(material, sent), "bytes", UNKNOWN),
        number(given, "tokens", UNKNOWN),
        share(None if cached is None or not given else cached / given, UNKNOWN),
        number(total_of([each.output_tokens for each in done]), "tokens", UNKNOWN),
        number(total_of([each.price for each in done]), "US$", UNKNOWN),
    )


def connections(material: Material, sent: Sequence[Sample]) -> int | None:
    """Return how many of the requests opened a connection; None where it is not known."""
    openers = material.recorded.openers(sent)
    return None if openers is None else len(openers)


def bytes_sent(material: Material, sent: Sequence[Sample]) -> float | None:
    """Return the bytes of all requests' bodies: as they came in by the provider's log, or else by the client's word."""
    if material.recorded.log is None:
        return total_of([sample.request_bytes for sample in sent])
    tags = {sample.tag for sample in sent}
    return sum(entry.bytes_in for entry in material.recorded.log if entry.tag in tags)


def _errors(material: Material) -> Iterator[str]:
    for cell in material.valid_cells:
        found = material.found(cell.name)
        where = f"{cell.name}, " if material.several_cells else ""
        for arm, counts in found.errors.items():
            if counts:
                said = listed(f"{count:,} with {error}" for error, count in counts.items())
                yield f"{where}{arm}: of {counted(found.requests.get(arm, 0), 'request')} failed {said}."


def total_of(values: Sequence[float | None]) -> float | None:
    """Return the sum of counts; None where any of them is not known."""
    known = [value for value in values if value is not None]
    # A sum of some would pass for the sum of all.
    return sum(known) if known and len(known) == len(values) else None
