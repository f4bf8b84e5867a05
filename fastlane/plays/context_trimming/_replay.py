"""Replay a conversation message by message, so that whoever sends more of it later finds the same cuts again.

An application sends its whole history with every call. What was cut when the conversation had grown to the high-water
mark is a function of the messages that there were then, and never of later ones. What a replay came to is remembered by
a hash of the conversation, so that the next call goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fastlane.records.prompt import Cut

from ._batch import Batch, Change, Counting, Marks
from ._parts import Part, read_part

Summarise = Callable[[list[Any]], str]
"""Returns what is to be kept of messages that are left out."""

SUMMARY = "[Summary of earlier messages of this conversation, which are left out]\n"
"""What stands before a summary."""

# About 4 MB: a message takes a number, and what a conversation has come to as much as 16 of these beside them.
_MOST_REMEMBERED_MESSAGES = 200_000
_STATE_AS_MESSAGES = 16
_MOST_SUMMARIES = 1_024
_MOST_CUTS = 256


class Summary(NamedTuple):
    """What stands in the place of messages that are left out."""

    text: str
    before: int
    """The message before which it stands: behind the last one that it sums up."""
    tokens: int


class Made(NamedTuple):
    """What came of asking for a summary: a text, or the reason why there is none."""

    text: str | None
    failure: str | None


class State(NamedTuple):
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
    summary: Summary | None = None
    failure: str | None = None
    """Why the last batch has no summary although one was asked for: an error's class name, "NoText" or "TooLong"."""


class Memory:
    """What replays came to, by a hash of the conversation; bounded, the oldest goes first.

    Threads may use one at once: each step is one operation of a dictionary, and two that replay the same conversation
    come to the same.
    """

    def __init__(self) -> None:
        self._states: dict[int, State] = {}
        self._messages = 0
        self._summaries: dict[Any, Made] = {}
        self._cuts: dict[int, tuple[Any, tuple[Cut, ...]]] = {}

    def __reduce__(self) -> tuple[type[Memory], tuple[()]]:
        """A copy remembers nothing: hashes mean nothing in another process, and summaries are text."""
        return Memory, ()

    def latest(self, chain: Sequence[int]) -> State | None:
        """Return the state of the longest known beginning of a conversation."""
        states = self._states
        for key in reversed(chain):
            found = states.get(key)
            if found is not None:
                return found
        return None

    def remember(self, key: int, state: State) -> None:
        """Keep a state."""
        known = self._states.pop(key, None)
        self._states[key] = state
        self._messages += _weight(state) - (_weight(known) if known is not None else 0)
        if self._messages > _MOST_REMEMBERED_MESSAGES:
            self._forget()

    def _forget(self) -> None:
        for key in list(self._states):
            if self._messages <= _MOST_REMEMBERED_MESSAGES * 3 // 4:
                return
            gone = self._states.pop(key, None)
            self._messages -= _weight(gone) if gone is not None else 0

    def summary(self, key: Any, make: Callable[[], str]) -> Made:
        """Return a batch's summary, made once. A failure is remembered too: later it would break the prefix again."""
        known = self._summaries.get(key)
        if known is None:
            try:
                text = make()
            except Exception as error:  # noqa: BLE001 - the application's function: whatever it raises
                made = Made(None, type(error).__name__)
            else:
                made = Made(text, None) if isinstance(text, str) and text.strip() else Made(None, "NoText")
            # Of two threads the first one's holds for both.
            known = self._summaries.setdefault(key, made)
            if len(self._summaries) > _MOST_SUMMARIES:
                for oldest in list(self._summaries)[: _MOST_SUMMARIES // 4]:
                    self._summaries.pop(oldest, None)
        return known

    def cuts(self, name: str, lead: int, changes: Mapping[int, Change], make: Callable[[], tuple[Cut, ...]]) -> Any:
        """Return what a record says of changes, made once: between two batches they are the same object."""
        meant = (name, lead, changes)
        known = self._cuts.get(id(changes))
        if known is not None and known[0][2] is changes and known[0] == meant:
            return known[1]
        if len(self._cuts) >= _MOST_CUTS:
            self._cuts.clear()
        made = make()
        self._cuts[id(changes)] = (meant, made)
        return made


def _weight(state: State) -> int:
    return len(state.sizes) + _STATE_AS_MESSAGES


class Replay(NamedTuple):
    """What replaying a conversation needs beside the conversation."""

    marks: Marks
    memory: Memory
    summarise: Summarise | None
    start: Callable[[], Counting]
    """Called once for a conversation that is not known."""


class Replayed(NamedTuple):
    """What a conversation came to, and how many messages of it were known."""

    state: State
    known: int | None
    """How many messages the longest known beginning has; None for a new conversation."""


def replay(
    settings: Replay, messages: Sequence[Mapping[str, Any]], stable: frozenset[int], chain: Sequence[int]
) -> Replayed:
    """Return what a conversation has come to. `chain[n]` is a hash of what it is and its first n messages."""
    known = settings.memory.latest(chain)
    if known is None:
        counting = settings.start()
        state = State((), counting, counting.overhead)
    else:
        state = known
    new = messages[len(state.sizes) :]
    if not new:
        return Replayed(state, None if known is None else len(known.sizes))
    cutting = _Cutting(settings, messages, stable)
    sizes, total = list(state.sizes), state.total
    for message in new:
        sizes.append(state.counting.count(message))
        if state.orphaned:
            state = _without_orphan(state, read_part(message), len(sizes) - 1, sizes[-1])
        total += sizes[-1] if len(sizes) - 1 not in state.changes else 0
        if total > settings.marks.high:
            state = cutting.cut(state, sizes, total, chain[len(sizes)])
            total = state.total
    state = state._replace(sizes=tuple(sizes), total=total)
    settings.memory.remember(chain[-1], state)
    return Replayed(state, None if known is None else len(known.sizes))


def _without_orphan(state: State, part: Part, index: int, size: int) -> State:
    """A state in which a result is left out whose call was left out before it came."""
    if part.kind == "result" and part.result_of in state.orphaned:
        change = Change("turn", None, size, state.point)
        return state._replace(orphaned=state.orphaned - {part.result_of}, changes={**state.changes, index: change})
    if part.calls:
        return state._replace(orphaned=state.orphaned - {call.call_id for call in part.calls})
    return state


class _Cutting:
    """Cuts of one conversation, whose messages are read once for all of them."""

    def __init__(self, settings: Replay, messages: Sequence[Mapping[str, Any]], stable: frozenset[int]) -> None:
        self._settings = settings
        self._messages = messages
        self._stable = stable
        self._parts: list[Part] = []

    def cut(self, state: State, sizes: Sequence[int], total: int, key: int) -> State:
        """Return the state after a cut of as many messages as there are sizes."""
        parts = self._parts = self._parts or [read_part(message) for message in self._messages]
        there = len(sizes)
        settings, messages = self._settings, self._messages[:there]
        batch = Batch(
            messages, parts[:there], sizes, self._stable, state.changes, total, settings.marks, state.counting
        ).run()
        if batch.changes == state.changes:
            return self._fitting(state._replace(total=batch.total), there)
        cut = state._replace(
            sizes=tuple(sizes),
            total=batch.total,
            changes=batch.changes,
            orphaned=state.orphaned | batch.unanswered,
            point=there,
            batches=state.batches + 1,
            failure=None,
        )
        if settings.summarise is not None and batch.dropped:
            cut = _summed_up(settings, cut, messages, batch.dropped, key)
        return self._fitting(cut, there)

    def _fitting(self, state: State, there: int) -> State:
        """A state without its summary, where that is what does not fit."""
        if state.summary is None or state.total <= self._settings.marks.high:
            return state
        changes = {
            index: Change("turn", None, change.tokens, there) if change.kind == "summarised" else change
            for index, change in state.changes.items()
        }
        total = state.total - state.summary.tokens
        return state._replace(summary=None, total=total, changes=changes, point=there, failure="TooLong")


def _summed_up(
    settings: Replay, state: State, messages: Sequence[Mapping[str, Any]], dropped: Sequence[int], key: int
) -> State:
    """A state with a summary of what was left out and of the summary before; as it was where none is to be had."""
    summarise, before = settings.summarise, state.summary
    assert summarise is not None
    to_fold: list[Any] = [messages[index] for index in dropped]
    if before is not None:
        to_fold.insert(0, summary_message(before))
    made = settings.memory.summary((summarise, settings.marks, key), lambda: summarise(to_fold))
    if made.text is None:
        return state._replace(failure=made.failure)
    summary = Summary(made.text, dropped[-1] + 1, 0)
    summary = summary._replace(tokens=state.counting.count(summary_message(summary)))
    total = state.total + summary.tokens - (before.tokens if before is not None else 0)
    if total > settings.marks.high or summary.tokens >= sum(state.sizes[index] for index in dropped):
        return state._replace(failure="TooLong")
    changes = {
        index: change._replace(kind="summarised") if change.point == state.point and change.text is None else change
        for index, change in state.changes.items()
    }
    return state._replace(summary=summary, total=total, changes=changes)


def summary_message(summary: Summary) -> dict[str, Any]:
    """Return the message that holds a summary.

    It is the user's: what a tool or a stranger said in it must not become an instruction of the application's.
    """
    return {"role": "user", "content": SUMMARY + summary.text}
