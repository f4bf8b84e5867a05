"""Put spans together: user actions with their calls, calls without an action, and traces that have neither."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ._calls import answering_of, attempt_note, call_of, is_action, is_attempt, is_call, phase_of
from ._model import PHASES, Kind, TraceArm, TraceCall, TraceEntry, WaterfallBar
from ._spans import Span

Key = tuple[str, str]

_DEEPEST = 40
"""No waterfall is indented any further."""
_LEAST_PAUSE_NS = 1_000_000


def entries(spans: Iterable[Span]) -> tuple[TraceEntry, ...]:
    """What the spans tell of, in order of time. Pure: the same spans, the same entries."""
    family = _Family(spans)
    heads: list[tuple[Span, tuple[str, ...]]] = []
    plain: list[Span] = []
    for root in family.roots:
        found = list(_heads(root, family))
        heads += found
        plain += [] if found else [root]
    made = [_entry(group, family) for group in _joined(heads)]
    made += [_entry([(root, ())], family) for root in plain]
    return tuple(sorted(made, key=lambda entry: (entry.start_ns, entry.trace_id)))


class _Family:
    """Spans with their children. Whatever their parents say, each span is below exactly one root."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self.known = known = {span.key: span for span in spans}
        self.children: dict[Key, list[Span]] = defaultdict(list)
        self.roots: list[Span] = []
        for span in known.values():
            parent = (span.trace_id, span.parent_id or "")
            # A call that another model was left for may hang below it, and is no part of it.
            if span.parent_id is None or parent not in known or parent == span.key or parent in _left(span):
                self.roots.append(span)
            else:
                self.children[parent].append(span)
        for children in self.children.values():
            children.sort(key=lambda span: (span.start_ns, span.end_ns))
        self._cut_rings(known)

    def _cut_rings(self, known: Mapping[Key, Span]) -> None:
        seen = {span.key for root in self.roots for span, _ in self.below(root)} | {root.key for root in self.roots}
        for key, span in known.items():
            if key not in seen:
                # Spans that are each other's ancestors: the first of them becomes the root.
                siblings = self.children[(span.trace_id, span.parent_id or "")]
                siblings.remove(span)
                self.roots.append(span)
                seen |= {span.key} | {each.key for each, _ in self.below(span)}

    def issued_ns(self, call: Span) -> int:
        """When a call was issued, whatever it fell back to since."""
        return min([call.start_ns, *(self.known[key].start_ns for key in _left(call) if key in self.known)])

    def below(self, span: Span) -> Iterator[tuple[Span, int]]:
        """Every span below `span` with its depth, each before those below it."""
        waiting = [(child, 1) for child in reversed(self.children.get(span.key, ()))]
        while waiting:
            each, depth = waiting.pop()
            yield each, depth
            waiting += [(child, depth + 1) for child in reversed(self.children.get(each.key, ()))]


def _left(span: Span) -> tuple[Key, ...]:
    """The calls that were left for this one."""
    return tuple(
        (link.trace_id, link.span_id)
        for link in span.links
        if link.attributes.get("fastlane.link.reason") == "fallback" and is_call(span)
    )


def _heads(root: Span, family: _Family) -> Iterator[tuple[Span, tuple[str, ...]]]:
    """The outermost actions and calls at or below `root`, each with the names of what is around it."""
    waiting: list[tuple[Span, tuple[str, ...]]] = [(root, ())]
    while waiting:
        span, within = waiting.pop()
        if is_action(span) or is_call(span):
            yield span, within
            continue
        around = (*within, span.name)[-8:]
        waiting += [(child, around) for child in reversed(family.children.get(span.key, ()))]


def _joined(heads: Sequence[tuple[Span, tuple[str, ...]]]) -> list[list[tuple[Span, tuple[str, ...]]]]:
    """One group for each entry: a call that another one was left for belongs to that one's."""
    groups = {span.key: [(span, within)] for span, within in heads}
    for span, _ in sorted(heads, key=lambda head: head[0].start_ns):
        for key in _left(span):
            first, own = groups.get(key), groups[span.key]
            if first is not None and first is not own:
                first += own
                for each, _ in own:
                    groups[each.key] = first
    return list({id(group): group for group in groups.values()}.values())


def _entry(group: list[tuple[Span, tuple[str, ...]]], family: _Family) -> TraceEntry:
    group.sort(key=lambda head: head[0].start_ns)
    head, within = group[0]
    rows: list[WaterfallBar] = []
    calls: list[TraceCall] = []
    for span, _ in group:
        _rows(span, family, rows, calls)
    kind: Kind = "action" if is_action(head) else "call" if calls else "other"
    # An action may have ended well though a call in it failed; a call fell back where its last part ended well.
    error = head.error if kind == "action" or not calls else calls[-1].error
    start = min(span.start_ns for span, _ in group)
    end = max(span.end_ns for span, _ in group)
    return TraceEntry(
        kind=kind,
        name=_name(head, kind),
        trace_id=head.trace_id,
        start_ns=start,
        end_ns=end,
        error=error,
        calls=tuple(calls),
        rows=tuple(rows),
        within=within,
        experiment=_experiment(head, calls),
        durations_s=_durations(calls, (end - start) / 1e9),
    )


def _name(head: Span, kind: Kind) -> str:
    named = head.text("fastlane.interaction.name", "gen_ai.workflow.name", "gen_ai.agent.name")
    return named if kind == "action" and named else head.name


def _experiment(head: Span, calls: Sequence[TraceCall]) -> TraceArm | None:
    for span in (head, *(call.span for call in calls)):
        name, arm = span.text("fastlane.experiment.name"), span.text("fastlane.experiment.arm")
        if name and arm:
            return TraceArm(experiment=name, arm=arm, unit=span.text("fastlane.experiment.unit_id_hash"))
    return None


def _durations(calls: Sequence[TraceCall], total_s: float) -> dict[str, float]:
    """Seconds of each phase over all calls; what calls took that were left for other models is one of them."""
    sums = dict.fromkeys(PHASES, 0.0)
    # All that a call fell back to are linked to the first: the last of them is the one that was not left.
    last = {next(iter(_left(call.span)), call.span.key): call.span.key for call in calls}
    for call in calls:
        if call.span.key not in last.values():
            sums["retries"] += sum(call.durations_s.values())
        else:
            for name, seconds in call.durations_s.items():
                sums[name] += seconds
    sums["other"] += max(0.0, total_s - sum(sums.values()))
    return {name: seconds for name, seconds in sums.items() if seconds > 0}


def _rows(head: Span, family: _Family, rows: list[WaterfallBar], calls: list[TraceCall]) -> None:
    waiting: list[tuple[Span, int, TraceCall | None]] = [(head, 0, None)]
    while waiting:
        span, depth, around = waiting.pop()
        call = None
        if around is None and is_call(span):
            call = call_of(span, [each for each, _ in family.below(span)], issued_ns=family.issued_ns(span))
            calls.append(call)
        if around is not None:
            rows += _pause_before(span, around, depth)
        rows.append(_row(span, depth, around, call))
        inside = call or around
        if inside is not None:
            rows += _drawn(inside, span, depth + 1)
        below = min(depth + 1, _DEEPEST)
        waiting += [(child, below, inside) for child in reversed(family.children.get(span.key, ()))]


def _pause_before(span: Span, call: TraceCall, depth: int) -> Iterator[WaterfallBar]:
    """Yield a row for the time between an attempt and the end of those before it."""
    for number, attempt in enumerate(call.attempts):
        if attempt.span is span and number:
            ended_ns = max(each.span.end_ns for each in call.attempts[:number])
            if span.start_ns - ended_ns >= _LEAST_PAUSE_NS:
                yield WaterfallBar(
                    depth=depth, label="pause", phase="pause", start_ns=ended_ns, end_ns=span.start_ns, span=None
                )


def _drawn(call: TraceCall, span: Span, depth: int) -> Iterator[WaterfallBar]:
    """Rows below `span` for phases that have no spans of their own."""
    answering = answering_of(call.attempts)
    for phase in call.phases:
        owner = call.span if answering is None or phase.name in ("prepare", "validate") else answering.span
        if phase.span is None and owner.key == span.key:
            yield WaterfallBar(
                depth=min(depth, _DEEPEST),
                label=phase.name,
                phase=phase.name,
                start_ns=phase.start_ns,
                end_ns=phase.end_ns,
                span=None,
            )


def _row(span: Span, depth: int, around: TraceCall | None, call: TraceCall | None) -> WaterfallBar:
    note, phase = "", phase_of(span)
    first_ns = None
    if call is not None:
        phase = "call"
        if call.time_to_first_token_s is not None:
            first_ns = call.issued_ns + int(call.time_to_first_token_s * 1e9)
        reasons = [str(link.attributes.get("fastlane.link.reason")) for link in span.links if link.attributes]
        note = ", ".join(dict.fromkeys(reason for reason in reasons if reason != "None"))
    elif phase is None and is_attempt(span):
        phase = "attempt"
        own = next((each for each in around.attempts if each.span.key == span.key), None) if around else None
        note = attempt_note(own) if own else ""
    elif phase is None:
        phase = "action" if is_action(span) else "call" if is_call(span) else "span"
    return WaterfallBar(
        depth=depth,
        label=span.name,
        phase=phase,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        span=span,
        error=span.error,
        first_token_ns=first_ns,
        note=note,
    )
