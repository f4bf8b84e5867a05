"""Replay a conversation message by message, so that more of it leads to the same cuts again.

The caller sends the whole history with every call. What was cut when the conversation had grown to the high-water mark
is a function of the messages that there were then, and never of later ones. The outcome of a replay is remembered by a
hash of the conversation, so that the next call goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from fastlane.knowledge.table import Table
from fastlane.records.prompt import Cut

from .cut import Change, Counting, CutPlan, Marks
from .parts import MessageRole, read_part, text_of
from .section import ContextTrimmingSection

# Instructions with a clock in them are a little longer in one call than in the next: their size is rounded to this, so
# that this makes no other conversation of it.
_CHARACTERS = 1_024
_LEADING = ("system", "developer")
_MOST_STATES = 1_000
_EXPIRES_S = 86_400.0


class ReplayState(NamedTuple):
    """What a conversation has come to. Nothing in it is ever changed."""

    sizes: tuple[int, ...]
    """Tokens of each message as the caller gave it."""
    counting: Counting
    total: int
    """Tokens of all that is sent."""
    changes: Mapping[int, Change] = {}
    orphaned: frozenset[str] = frozenset()
    """Calls that were left out before their results came."""
    point: int = 0
    """How many messages there were at the last batch."""
    batches: int = 0
    cuts: tuple[Cut, ...] = ()
    """The changes as records have them."""


Memory = Table[int, ReplayState]
"""What replays came to, by a hash of the conversation: numbers and lines, no text of a message."""


def new_memory() -> Memory:
    """Return a memory of conversations. Threads may share it: two that replay the same one come to the same."""
    return Table("trimmed conversations", max_entries=_MOST_STATES, expires_s=_EXPIRES_S)


class ReplaySettings(NamedTuple):
    """What a conversation is cut with."""

    marks: Marks
    memory: Memory
    start: Callable[[Sequence[Mapping[str, Any]]], Counting]
    """Called once for a conversation that is not known, with its leading instructions, which are sent beside it."""
    seed: Any
    """What else tells conversations apart."""


class Trimmed(NamedTuple):
    """A conversation as it is to be sent."""

    messages: list[Any] | None
    """None where it is sent as it came."""
    indexes: Sequence[int]
    """Where each of them stood; empty where it is sent as it came."""
    record: ContextTrimmingSection


def trim(
    name: str,
    messages: Sequence[Mapping[str, Any]],
    settings: ReplaySettings,
    *,
    stable: Collection[int] = (),
    volatile: Collection[int] = (),
) -> Trimmed:
    """Return how a conversation is to be sent; `name` is what holds it: "messages" or "input".

    Messages at the indexes `stable` are not touched. Those at `volatile` are sent where they stand, and are not part of
    the conversation: the next call has others.
    """
    lead = 0
    while lead < len(messages) and messages[lead].get("role") in _LEADING and lead not in volatile:
        lead += 1
    places: Sequence[int] = range(lead, len(messages))
    if volatile:
        places = [place for place in places if place not in volatile]
    rest = [messages[place] for place in places] if volatile else messages[lead:]
    kept = frozenset(at for at, place in enumerate(places) if place in stable) if stable else frozenset()
    chain = _chain(settings.seed, messages[:lead], rest)
    known = next((state for key in reversed(chain) if (state := settings.memory.get(key)) is not None), None)
    state = known
    if state is None:
        counting = settings.start(messages[:lead])
        state = ReplayState((), counting, counting.overhead)
    if len(state.sizes) < len(rest):
        state = _replayed(state, settings.marks, rest, kept, lambda at: f"{name}[{places[at]}]")
        settings.memory.put(chain[-1], state)
    count, ratio = state.counting.count, state.counting.ratio
    beside = sum(count(messages[place]) for place in volatile)
    before = state.counting.overhead + sum(state.sizes) + beside
    if not state.changes:
        return Trimmed(None, (), ContextTrimmingSection(tokens_before=before, tokens_after=before, ratio=ratio))
    point = _sent_before(rest) if known is None else len(known.sizes)
    new_cuts = sum(change.point > point for change in state.changes.values()) if state.point > point else 0
    record = ContextTrimmingSection(
        tokens_before=before,
        tokens_after=state.total + beside,
        cuts=_cuts(state.changes, lambda at: f"{name}[{places[at]}]") if volatile else state.cuts,
        new_cuts=new_cuts,
        batches=state.batches,
        ratio=ratio,
    )
    changes = {places[at]: change for at, change in state.changes.items()}
    indexes = [at for at in range(len(messages)) if at not in changes or changes[at].text is not None]
    sent = [_shortened(messages[at], changes[at]) if at in changes else messages[at] for at in indexes]
    return Trimmed(sent, indexes, record)


def _shortened(message: Mapping[str, Any], change: Change) -> dict[str, Any]:
    field = "output" if str(message.get("type")).endswith("_output") else "content"
    return {**message, field: change.text}


def _cuts(changes: Mapping[int, Change], path: Callable[[int], str]) -> tuple[Cut, ...]:
    return tuple([Cut(kind=cut.kind, path=path(at), tokens=cut.tokens) for at, cut in sorted(changes.items())])


def _replayed(
    state: ReplayState,
    marks: Marks,
    messages: Sequence[Mapping[str, Any]],
    stable: frozenset[int],
    path: Callable[[int], str],
) -> ReplayState:
    sizes, total, changes, orphaned = list(state.sizes), state.total, state.changes, state.orphaned
    point, batches = state.point, state.batches
    parts: list[MessageRole] = []
    for message in messages[len(sizes) :]:
        size = state.counting.count(message)
        index = len(sizes)
        sizes.append(size)
        if orphaned:
            part = read_part(message)
            if part.kind == "result" and part.result_of in orphaned:
                # Its call was left out before it came.
                changes = {**changes, index: Change("turn", None, size, point)}
                orphaned -= {part.result_of}
                continue
            # An id that comes again belongs to the later call.
            orphaned -= {call.call_id for call in part.calls}
        total += size
        if total <= marks.high:
            continue
        there = len(sizes)
        parts = parts or [read_part(each) for each in messages]
        batch = CutPlan(messages[:there], parts[:there], sizes, stable, changes, total, marks, state.counting).run()
        if batch.changes != changes:
            changes, total, orphaned = batch.changes, batch.total, orphaned | batch.unanswered
            point, batches = there, batches + 1
    cuts = state.cuts if changes is state.changes else _cuts(changes, path)
    return ReplayState(tuple(sizes), state.counting, total, changes, orphaned, point, batches, cuts)


def _chain(seed: Any, leading: Sequence[Mapping[str, Any]], rest: Sequence[Mapping[str, Any]]) -> list[int]:
    """A hash of the conversation before its first message, and with each.

    Of the instructions that it begins with only their rough size is in it: they are never cut, and may hold a clock.
    """
    size = sum(len(text_of(message.get("content"))) for message in leading)
    key = hash((seed, len(leading), size // _CHARACTERS))
    chain = [key]
    for message in rest:
        key = hash((key, _digest(message)))
        chain.append(key)
    return chain


def _digest(message: Mapping[str, Any]) -> int:
    # Python keeps a text's hash with the text: for a history that is sent again this reads no text.
    try:
        calls = message.get("tool_calls")
        if not calls:
            return hash((*message, *message.values()))
        # What else there may be in a call moves no cut.
        called = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]
        return hash((len(message), message["role"], message.get("content"), *called))
    except (KeyError, TypeError):
        return hash(_frozen(message))


def _frozen(value: Any) -> Any:
    kind = type(value)
    if kind is str or value is None:
        return value
    if kind is dict or isinstance(value, Mapping):
        return tuple([(key, _frozen(one)) for key, one in value.items()])
    if kind is list or kind is tuple:
        return tuple([_frozen(one) for one in value])
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def _sent_before(rest: Sequence[Mapping[str, Any]]) -> int:
    """How many messages the call before had, as far as the messages tell: those before the model's last answer."""
    for at in range(len(rest) - 1, 0, -1):
        if read_part(rest[at]).kind == "answer" and read_part(rest[at - 1]).kind != "answer":
            return at
    return 0
