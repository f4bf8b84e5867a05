"""Put spans together: user actions with their calls, calls without an action, and traces that have neither."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from ._calls import answering_of, attempt_note, call_of, is_action, is_attempt, is_call, phase_of
from ._model import PHASES, Kind, Span, TraceArm, TraceCall, TraceEntry, WaterfallBar

Key = tuple[str, str]
Head = tuple[Span, tuple[str, ...]]
_DEEPEST: Final = 40
"""No waterfall is indented any further."""
_LEAST_PAUSE_NS: Final = 1_000_000


def entries(spans: Iterable[Span]) -> tuple[TraceEntry, ...]:
    """Return what the spans tell of, in order of time. Pure: the same spans, the same entries."""
    tree = _Tree(spans)
    made = [_entry(*head, tree) for root in tree.roots for head in list(_heads(root, tree)) or [(root, ())]]
    return tuple(sorted(made, key=lambda entry: (entry.start_ns, entry.trace_id)))


class _Tree:
    """Spans with their children. Whatever their parents are, each span is below exactly one root."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self.known = {span.key: span for span in spans}
        self.children: dict[Key, list[Span]] = defaultdict(list)
        self.roots: list[Span] = []
        for span in self.known.values():
            parent = (span.trace_id, span.parent_id or "")
            if parent not in self.known or parent == span.key:
                self.roots.append(span)
            else:
                self.children[parent].append(span)
        for children in self.children.values():
            children.sort(key=lambda span: (span.start_ns, span.end_ns))
        seen = {span.key for root in self.roots for span in (root, *self.below(root))}
        for key, span in self.known.items():
            if key not in seen:
                # Spans that are each other's ancestors: the first of them becomes the root.
                self.children[span.trace_id, span.parent_id or ""].remove(span)
                self.roots.append(span)
                seen |= {each.key for each in (span, *self.below(span))}

    def below(self, span: Span) -> list[Span]:
        """Return every span below this one, each before those below it."""
        found: list[Span] = []
        waiting = [*reversed(self.children.get(span.key, ()))]
        while waiting:
            found.append(waiting.pop())
            waiting += reversed(self.children.get(found[-1].key, ()))
        return found


def _heads(root: Span, tree: _Tree) -> Iterator[Head]:
    """Yield the outermost actions and calls at or below `root`."""
    waiting: list[Head] = [(root, ())]
    while waiting:
        span, within = waiting.pop()
        if is_action(span) or is_call(span):
            yield span, within
        else:
            around = (*within, span.name)[-8:]
            waiting += [(child, around) for child in reversed(tree.children.get(span.key, ()))]


def _entry(head: Span, within: tuple[str, ...], tree: _Tree) -> TraceEntry:
    rows: list[WaterfallBar] = []
    calls: list[TraceCall] = []
    _add_rows(head, tree, rows, calls)
    kind: Kind = "action" if is_action(head) else "call" if calls else "other"
    name = head.text("fastlane.interaction.name", "gen_ai.workflow.name", "gen_ai.agent.name")
    return TraceEntry(
        kind=kind,
        name=name if kind == "action" and name else head.name,
        trace_id=head.trace_id,
        start_ns=head.start_ns,
        end_ns=head.end_ns,
        error=head.error,
        calls=tuple(calls),
        rows=tuple(rows),
        within=within,
        experiment=_experiment(head, calls),
        durations_s=_durations_s(calls, head.seconds),
    )


def _experiment(head: Span, calls: Sequence[TraceCall]) -> TraceArm | None:
    for span in (head, *(call.span for call in calls)):
        name, arm = span.text("fastlane.experiment.name"), span.text("fastlane.experiment.arm")
        if name and arm:
            return TraceArm(name, arm, span.text("fastlane.experiment.unit_id_hash"))
    return None


def _durations_s(calls: Sequence[TraceCall], total_s: float) -> Mapping[str, float]:
    """Return seconds of each phase over all calls."""
    sums = dict.fromkeys(PHASES, 0.0)
    for call in calls:
        for name, seconds in call.durations_s.items():
            sums[name] += seconds
    sums["other"] += max(0.0, total_s - sum(sums.values()))
    return {name: seconds for name, seconds in sums.items() if seconds > 0}


def _add_rows(head: Span, tree: _Tree, rows: list[WaterfallBar], calls: list[TraceCall]) -> None:
    waiting: list[tuple[Span, int, TraceCall | None]] = [(head, 0, None)]
    while waiting:
        span, depth, around = waiting.pop()
        call = None
        if around is not None:
            number = next((at for at, attempt in enumerate(around.attempts) if attempt.span is span), 0)
            ended_ns = max((each.span.end_ns for each in around.attempts[:number]), default=span.start_ns)
            if span.start_ns - ended_ns >= _LEAST_PAUSE_NS:
                rows.append(WaterfallBar(depth, "pause", "pause", ended_ns, span.start_ns))
        elif is_call(span):
            call = call_of(span, tree.below)
            calls.append(call)
        rows.append(_row(span, depth, around, call))
        inside, deeper = call or around, min(depth + 1, _DEEPEST)
        if inside is not None:
            for phase in inside.phases:
                # A phase without a span of its own is drawn below the attempt that answered, or below the call.
                answering = None if phase.name in ("prepare", "validate") else answering_of(inside.attempts)
                if phase.span is None and span is (inside.span if answering is None else answering.span):
                    rows.append(WaterfallBar(deeper, phase.name, phase.name, phase.start_ns, phase.end_ns))
        waiting += [(child, deeper, inside) for child in reversed(tree.children.get(span.key, ()))]


def _row(span: Span, depth: int, around: TraceCall | None, call: TraceCall | None) -> WaterfallBar:
    note, phase, first_ns = "", phase_of(span), None
    if call is not None:
        phase = "call"
        if call.time_to_first_token_s is not None:
            first_ns = span.start_ns + int(call.time_to_first_token_s * 1e9)
    elif phase is None and is_attempt(span):
        phase = "attempt"
        note = next(
            (attempt_note(each) for each in (around.attempts if around else ()) if each.span.key == span.key), ""
        )
    elif phase is None:
        phase = "action" if is_action(span) else "call" if is_call(span) else "span"
    return WaterfallBar(depth, span.name, phase, span.start_ns, span.end_ns, span, span.error, first_ns, note)
