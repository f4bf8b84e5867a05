"""Replay a conversation message by message, so that more of it leads to the same cuts again.

The caller sends the whole history with every call. What was cut when the conversation had grown to the high-water mark
is a function of the messages that there were then, and never of later ones. The outcome of a replay is remembered by a
hash of the conversation, so that the next call goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from fastlane.knowledge.table import Table
from fastlane.records.plays import Cut

from .cut import Change, Counting, CutPlan, Marks
from .parts import MessageRole, read_role, text_of
from .section import ContextTrimmingSection

# Instructions with a clock in them are a little longer in one call than in the next: their size is rounded to this, so
# that this makes no other conversation of it.
_CHARACTERS = 1_024
_LEADING = ("system", "developer")
_MAX_STATES = 1_000
_EXPIRES_S = 86_400.0


class ReplayState(NamedTuple):
    """What a conversation has come to. Nothing in it is ever changed."""

    sizes: tuple[int, ...]
    """Tokens of each message as the caller gave it."""
    counting: Counting
    total: int
    """Tokens of all that is sent."""
    changes: Mapping[int, Change] = {}
    point: int = 0
    """How many messages there were at the last batch."""
    batches: int = 0
    cuts: tuple[Cut, ...] = ()
    """The changes as records have them."""


Memory = Table[int, ReplayState]
"""What replays came to, by a hash of the conversation: numbers and lines, no text of a message."""


def new_memory() -> Memory:
    """Return a memory of conversations. Threads may share it: two that replay the same one come to the same."""
    return Table("trimmed conversations", max_entries=_MAX_STATES, expires_s=_EXPIRES_S)


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
    """None if it is sent as it came."""
    indexes: Sequence[int]
    """Where each of them stood; empty where it is sent as it came."""
    record: ContextTrimmingSection


def trim(
    name: str, messages: Sequence[Mapping[str, Any]], settings: ReplaySettings, *, stable: Collection[int] = ()
) -> Trimmed:
    """Return how a conversation is to be sent; `name` is what holds it: "messages" or "input".

    Messages at the indexes `stable` are not touched.
    """
    lead = 0
    while lead < len(messages) and messages[lead].get("role") in _LEADING:
        lead += 1
    rest = messages[lead:]
    chain = _chain(settings.seed, messages[:lead], rest)
    state = next((state for key in reversed(chain) if (state := settings.memory.get(key)) is not None), None)
    known = 0 if state is None else len(state.sizes)
    if state is None:
        counting = settings.start(messages[:lead])
        state = ReplayState((), counting, counting.overhead)
    if known < len(rest):
        kept = frozenset(index - lead for index in stable)
        state = _replayed(state, settings.marks, rest, kept, lambda index: f"{name}[{index + lead}]")
        settings.memory.put(chain[-1], state)
    before = state.counting.overhead + sum(state.sizes)
    if not state.changes:
        return Trimmed(None, (), ContextTrimmingSection(tokens_before=before, tokens_after=before))
    record = ContextTrimmingSection(
        tokens_before=before,
        tokens_after=state.total,
        cuts=state.cuts,
        new_cuts=sum(change.point > known for change in state.changes.values()) if state.point > known else 0,
        batches=state.batches,
    )
    changes = {index + lead: change for index, change in state.changes.items()}
    indexes = [index for index in range(len(messages)) if index not in changes or changes[index].text is not None]
    sent = [_shortened(messages[index], changes[index]) if index in changes else messages[index] for index in indexes]
    return Trimmed(sent, indexes, record)


def _shortened(message: Mapping[str, Any], change: Change) -> dict[str, Any]:
    field = "output" if str(message.get("type")).endswith("_output") else "content"
    return {**message, field: change.text}


def _replayed(
    state: ReplayState,
    marks: Marks,
    messages: Sequence[Mapping[str, Any]],
    stable: frozenset[int],
    path: Callable[[int], str],
) -> ReplayState:
    sizes, total, changes, cuts = list(state.sizes), state.total, state.changes, state.cuts
    point, batches = state.point, state.batches
    roles: list[MessageRole] = []
    for message in messages[len(sizes) :]:
        size = state.counting.count(message)
        sizes.append(size)
        total += size
        if total <= marks.high:
            continue
        there = len(sizes)
        roles = roles or [read_role(each) for each in messages]
        cut = CutPlan(
            messages[:there], roles[:there], sizes, stable, dict(changes), total, marks, state.counting.count
        ).run()
        if cut.changes != changes:
            changes, total, point, batches = cut.changes, cut.total, there, batches + 1
    if changes is not state.changes:
        cuts = tuple(Cut(kind=cut.kind, path=path(index), tokens=cut.tokens) for index, cut in sorted(changes.items()))
    return ReplayState(tuple(sizes), state.counting, total, changes, point, batches, cuts)


def _chain(seed: Any, leading: Sequence[Mapping[str, Any]], rest: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return a hash of the conversation before its first message, and with each.

    Of the instructions that it begins with only their rough size is in it: they are never cut, and may hold a clock.
    """
    size = sum(len(text_of(message.get("content"))) for message in leading)
    key = hash((seed, len(leading), size // _CHARACTERS))
    chain = [key]
    for message in rest:
        key = hash((key, _frozen(message)))
        chain.append(key)
    return chain


def _frozen(value: Any) -> Any:
    # Python keeps a text's hash with the text: for a history that is sent again, hashing this reads no text.
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
