"""What stands behind a comparison: where the time went, which play brought what, and what it took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from .._formatting import change, counted, figure, interval, listed, lowered, signed_figure
from ..findings import Attribution, Cold, Interval
from ..recorded import ArmInfo, Cell, Sample, metric_named
from ._blocks import Block, Chart, Column, Heading, Paragraph, ReportTable, TableCell, TableRow
from ._cells import NOTHING, counted_entry, interval_entry, label, number_entry, share_entry
from ._material import Material
from ._phases import TITLES, ArmPhases
from ._tables import UNKNOWN, arm_table, without_empty

_COLD: Final = (
    "One request each, in no other figure: imports, connection and caches are cold. Warm: the same prompt, sent once "
    "more to warm up. Making the client is outside."
)


def phases_blocks(material: Material) -> Iterator[Block]:
    """Return where the time of each arm's requests went, and the waterfall of it."""
    found = {cell.name: material.phases(cell.name) for cell in material.valid_cells}
    shown = {phase.key: phase.meaning for arms in found.values() for arm in arms for phase in arm.phases}
    names = [key for key in TITLES if key in shown]
    yield Heading(text="Where the time goes")
    if not names and material.valid_cells:
        yield Paragraph(text="No request left the stamps that would say so.")
        return

    def figures(cell: Cell, arm: ArmInfo) -> tuple[TableCell, ...]:
        mine = next((each for each in found.get(cell.name, ()) if each.arm == arm.name), None)
        if mine is None:
            return (NOTHING,) * (len(names) + 2)
        each = tuple(number_entry(mine.of(key), "ms") for key in names)
        return (number_entry(mine.n), *each, number_entry(mine.total_ms, "ms"))

    meanings = [f"{TITLES[key][:1].upper()}{TITLES[key][1:]}: {shown[key]}" for key in names]
    yield arm_table(
        material,
        "Mean time in each phase",
        "phases",
        material.naming,
        (
            Column(title="n"),
            *(Column(title=TITLES[key], unit="ms") for key in names),
            Column(title="API end-to-end", unit="ms"),
        ),
        lambda cell, arm: material.names(cell, arm.name),
        figures,
        notes=(f"{'. '.join(meanings)}.",) if meanings else (),
    )
    caption = _waterfall_caption(material, found[material.valid_cells[0].name]) if material.valid_cells else ""
    yield Chart(
        name="waterfall",
        title="Where a mean request spends its time",
        caption=caption,
    )


def _waterfall_caption(material: Material, arms: Sequence[ArmPhases]) -> str:
    by_name = {arm.arm: arm for arm in arms}
    where = f" in {material.valid_cells[0].name}" if material.several_cells else ""
    said = []
    for info in material.recorded.header.references:
        reference = by_name.get(info.name)
        compared = [
            by_name[each.name]
            for each in material.compared_arms
            if each.name in by_name and material.recorded.header.reference_of(each.name) is info
        ]
        if reference is None or not compared:
            continue
        best = min(compared, key=lambda arm: arm.total_ms)
        differences = {key: best.of(key) - reference.of(key) for key in TITLES}
        most = min(differences, key=lambda name: differences[name])
        sentence = (
            f"In the mean a request{where} takes {figure(reference.total_ms, 'ms')} ms with {reference.arm} and "
            f"{figure(best.total_ms, 'ms')} ms with {best.arm}"
        )
        if differences[most] < 0:
            sentence += f"; the most is saved in {TITLES[most]}: {signed_figure(differences[most], 'ms')} ms"
        said.append(f"{sentence}.")
    return " ".join(said) or "Each phase as long as it takes in the mean."


def attribution_blocks(material: Material) -> Iterator[Block]:
    """Return what each play contributes, where the run took plays away one by one or added them."""
    if not material.findings.attributions:
        return
    yield Heading(text="Which play brings what")
    found = material.findings.attributions
    yield Chart(
        name="attribution",
        title="Each play's part of the whole change",
        caption=_attribution_caption(material, found),
    )
    for attribution in found:
        yield _attribution(material, attribution)


def _attribution_caption(material: Material, found: Sequence[Attribution]) -> str:
    valid = [each for each in found if not material.refused_attribution(each.cell) and each.shares]
    if not valid:
        return "There is nothing to divide."
    unit, title = metric_named(valid[0].metric).unit, lowered(metric_named(valid[0].metric).title)
    most = max(valid[0].shares, key=lambda each: abs(each.share.value))
    return (
        f"All plays together change {title} by {interval(valid[0].total, unit, signed=True)} {unit}; the largest part "
        f"is that of {play_name(most.play, valid[0])}: {interval(most.share, unit, signed=True)} {unit}."
    )


def _attribution(material: Material, attribution: Attribution) -> ReportTable:
    metric = metric_named(attribution.metric)
    refused = material.refused_attribution(attribution.cell)
    total = _whole(attribution.total)
    rows = []
    for each in attribution.shares:
        entries = (
            interval_entry(each.alone, metric.unit, signed=True),
            interval_entry(each.last, metric.unit, signed=True),
            interval_entry(each.share, metric.unit, signed=True),
            share_entry(each.share.value / total if total else None),
        )
        name = (label(play_name(each.play, attribution)),)
        rows.append(TableRow(entries=name if refused else name + entries, refused=refused))
    if not refused:
        whole = interval_entry(attribution.total, metric.unit, signed=True)
        of_whole = TableCell(text="100 %", value=1.0) if total else NOTHING
        rows.append(TableRow(entries=(label("all together"), NOTHING, NOTHING, whole, of_whole), tone="muted"))
    note = f"Interaction: {interval(attribution.interaction, metric.unit, signed=True)} {metric.unit}."
    where = f", {attribution.cell}" if material.several_cells else ""
    table = ReportTable(
        title=f"{metric.title}: each play's part of the change{where}",
        name=f"attribution_{attribution.metric}_{attribution.cell}",
        columns=(
            Column(title="play", alignment="left"),
            Column(title="alone", unit=metric.unit),
            Column(title="last", unit=metric.unit),
            Column(title="share", unit=metric.unit),
            Column(title="of the whole"),
        ),
        rows=tuple(rows),
        notes=() if refused or not interacts(attribution) else (note,),
    )
    return without_empty(table)


def interacts(attribution: Attribution) -> bool:
    """Whether an interaction was measured: where arms only add plays one by one, it is 0 by construction."""
    found = attribution.interaction
    most = max(abs(bound) for bound in (found.value, found.low or 0.0, found.high or 0.0))
    return most > 1e-9 * max(1.0, abs(attribution.total.value))


def play_name(play: str, attribution: Attribution) -> str:
    """Return a play's name without its settings, where no other play of the attribution has the same."""
    names = [each.play.split("(")[0] for each in attribution.shares]
    short = play.split("(", maxsplit=1)[0]
    return short if names.count(short) == 1 else play


def _whole(total: Interval) -> float | None:
    """Return the whole that parts are shares of; None where it may as well be nothing."""
    unsure = total.low is not None and total.high is not None and total.low <= 0 <= total.high
    return None if unsure or not total.value else total.value


def cold_blocks(material: Material) -> Iterator[Block]:
    """Return the very first requests, which are in no other figure."""
    if not material.findings.cold:
        return
    refused = material.refused_run()
    rows = []
    for each in material.findings.cold:
        entries = (
            number_entry(each.time_to_first_token_ms, "ms"),
            number_entry(each.warm_time_to_first_token_ms, "ms"),
            _cold_over_warm(each),
            number_entry(each.api_end_to_end_ms, "ms"),
            TableCell(text=each.error, value=each.error, tone="bad") if each.error else NOTHING,
        )
        name = (label(each.arm),)
        rows.append(TableRow(entries=name if refused else name + entries, refused=refused))
    yield Heading(text="Cold first requests")
    table = ReportTable(
        title="The very first request of each arm's process",
        name="cold",
        columns=(
            Column(title="arm", alignment="left"),
            Column(title="time to first token", unit="ms"),
            Column(title="the same prompt, warm", unit="ms"),
            Column(title="cold against warm"),
            Column(title="API end-to-end", unit="ms"),
            Column(title="error", alignment="left"),
        ),
        rows=tuple(rows),
        notes=(_COLD, *(() if refused else _slower_cold(material))),
    )
    yield without_empty(table)


def _cold_over_warm(found: Cold) -> TableCell:
    cold, warm = found.time_to_first_token_ms, found.warm_time_to_first_token_ms
    return TableCell(text=change(cold / warm), value=cold / warm) if cold and warm else NOTHING


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


def work_blocks(material: Material) -> Iterator[Block]:
    """Return what each arm's requests took: connections, bytes, tokens, errors."""
    samples = material.samples
    yield Heading(text="What it took")
    table = arm_table(
        material,
        "Requests, connections, bytes and tokens",
        "work",
        material.naming,
        (
            Column(title="requests"),
            Column(title="failed"),
            Column(title="opened a connection"),
            Column(title="body bytes sent"),
            Column(title="input tokens"),
            Column(title="read from cache"),
            Column(title="output tokens"),
            Column(title="price", unit="US$"),
        ),
        lambda cell, arm: material.names(cell, arm.name),
        lambda cell, arm: _work(material, samples.get((cell.name, arm.name), ())),
        arms=material.arms,
        notes=tuple(_errors(material)),
    )
    yield without_empty(table)


def _work(material: Material, sent: Sequence[Sample]) -> tuple[TableCell, ...]:
    failed = sum(sample.error is not None for sample in sent)
    done = [sample for sample in sent if sample.error is None]
    given, cached = (total_of([getattr(each, name) for each in done]) for name in ("input_tokens", "cached_tokens"))
    return (
        number_entry(len(sent)),
        counted_entry(failed),
        _or_unknown(connections(material, sent), ""),
        _or_unknown(bytes_sent(material, sent), "bytes"),
        _or_unknown(given, "tokens"),
        _or_unknown(None, "") if cached is None or not given else share_entry(cached / given),
        _or_unknown(total_of([each.output_tokens for each in done]), "tokens"),
        _or_unknown(total_of([each.price for each in done]), "US$"),
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
    for cell in material.cells:
        if material.refused(cell.name):
            continue
        found = material.found(cell.name)
        where = f"{cell.name}, " if material.several_cells else ""
        for arm, errors in found.errors.items():
            counts = Counter(errors)
            if counts:
                said = listed(f"{count:,} with {error}" for error, count in counts.most_common())
                yield f"{where}{arm}: of {counted(found.requests.get(arm, 0), 'request')} failed {said}."


def total_of(values: Sequence[float | None]) -> float | None:
    """Return the sum of counts; None where any of them is not known."""
    known = [value for value in values if value is not None]
    # A sum of some would pass for the sum of all.
    return sum(known) if known and len(known) == len(values) else None


def _or_unknown(value: float | None, unit: str) -> TableCell:
    return UNKNOWN if value is None else TableCell(text=figure(value, unit), value=value)
