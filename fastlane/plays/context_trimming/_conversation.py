"""Cut one conversation as it is to be sent, and say on a record what was cut."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from fastlane.records.prompt import CurationRecord, Cut

from ._batch import Change, Counting, Marks
from ._parts import read_part, text_of
from ._replay import Memory, Replay, State, Summarise, replay, summary_message
from .section import CurationSection

# Instructions with a clock in them are a little longer in one call than in the next: their size is rounded to this, so
# that this makes no other conversation of it.
_CHARACTERS = 1_024

_LEADING = ("system", "developer")


class Settings(NamedTuple):
    """What a conversation is cut with."""

    marks: Marks
    memory: Memory
    summarise: Summarise | None
    start: Callable[[Sequence[Mapping[str, Any]]], Counting]
    """Called once for a conversation that is not known, with its leading instructions, which are sent beside it."""
    seed: Any
    """What else tells conversations apart."""


class Result(NamedTuple):
    """A conversation as it is to be sent."""

    messages: list[Any] | None
    """None where it is sent as it came."""
    indexes: Sequence[int | None]
    """Where each of them stood, None for a summary; empty where it is sent as it came."""
    record: CurationRecord
    failure: str | None
    """Why the last batch has no summary although one was asked for."""


def curated(
    name: str,
    messages: Sequence[Mapping[str, Any]],
    settings: Settings,
    *,
    stable: Collection[int] = (),
    volatile: Collection[int] = (),
) -> Result:
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
    start = settings.start
    replayed = replay(
        Replay(settings.marks, settings.memory, settings.summarise, lambda: start(messages[:lead])), rest, kept, chain
    )
    state = replayed.state
    counting = state.counting
    beside = sum(map(counting.count, (messages[place] for place in volatile))) if volatile else 0
    before = counting.overhead + sum(state.sizes) + beside
    if not state.changes:
        return Result(None, (), CurationSection(tokens_before=before, tokens_after=before, ratio=counting.ratio), None)
    point = _sent_before(rest) if replayed.known is None else replayed.known
    cuts = (
        _cuts(name, places, state.changes)
        if volatile
        else settings.memory.cuts(name, lead, state.changes, lambda: _cuts(name, places, state.changes))
    )
    record = CurationSection(
        tokens_before=before,
        tokens_after=state.total + beside,
        cuts=cuts,
        new_cuts=sum(cut.point > point for cut in state.changes.values()) if state.point > point else 0,
        batches=state.batches,
        ratio=counting.ratio,
    )
    sent = _sent(messages, places, state)
    return Result([message for message, _ in sent], [index for _, index in sent], record, state.failure)


def _cuts(name: str, places: Sequence[int], changes: Mapping[int, Change]) -> tuple[Cut, ...]:
    return tuple(
        [Cut(kind=cut.kind, path=f"{name}[{places[at]}]", tokens=cut.tokens) for at, cut in sorted(changes.items())]
    )


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
    if kind is dict:
        return (*value, *map(_frozen, value.values()))
    if kind is list:
        return tuple(map(_frozen, value))
    if isinstance(value, Mapping):
        return tuple([(key, _frozen(one)) for key, one in value.items()])
    if isinstance(value, list | tuple):
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


def _sent(messages: Sequence[Any], places: Sequence[int], state: State) -> list[tuple[Any, int | None]]:
    changes: dict[int, Change] = {places[at]: change for at, change in state.changes.items()}
    summary = state.summary
    summary_at = -1
    if summary is not None:
        summary_at = places[summary.before] if summary.before < len(places) else len(messages)
    sent: list[tuple[Any, int | None]] = []
    for index, message in enumerate(messages):
        if index == summary_at and summary is not None:
            sent.append((summary_message(summary), None))
        change = changes.get(index)
        if change is None:
            sent.append((message, index))
        elif change.text is not None:
            field = "output" if str(message.get("type")).endswith("_output") else "content"
            sent.append(({**message, field: change.text}, index))
    if summary is not None and summary_at == len(messages):
        sent.append((summary_message(summary), None))
    return sent
