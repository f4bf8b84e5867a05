"""What the driven application tells the tests: its own records, to compare what a backend shows with."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path

from fastlane import CallRecord, user_action


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedAction:
    """A user action that is over."""

    name: str
    depth: int
    """0 for one that is in no other."""
    duration_s: float
    call_ids: tuple[str, ...]
    """Of its calls, those of nested actions included."""


@dataclass(slots=True)
class Notes:
    """What one run did."""

    calls: list[CallRecord] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    """Call ids of what went otherwise than usual: "cold", "retried", "hedged", ..."""
    actions: list[NotedAction] = field(default_factory=list)
    arms: dict[str, list[CallRecord]] = field(default_factory=dict)
    """The calls of each arm of the experiment, where there was one."""

    def call(self, record: CallRecord | None, label: str | None = None) -> None:
        """Note a call that is over."""
        assert record is not None, "the client has made no call"
        self.calls.append(record)
        if label is not None:
            self.labels[label] = record.call_id

    def action(self, action: user_action) -> None:
        """Note an action that is over."""
        assert action.application_end_to_end_s is not None
        call_ids = tuple(record.call_id for record in action.calls)
        self.actions.append(
            NotedAction(
                name=action.name,
                depth=len(action.path) - 1,
                duration_s=action.application_end_to_end_s,
                call_ids=call_ids,
            )
        )

    def add(self, others: Notes) -> None:
        """Take over what another part of the application has noted."""
        self.calls += others.calls
        self.labels |= others.labels
        self.actions += others.actions
        self.arms |= others.arms

    def labelled(self, label: str) -> CallRecord:
        """The call of this label."""
        (found,) = (record for record in self.calls if record.call_id == self.labels[label])
        return found

    def write(self, file: Path) -> None:
        """Keep them for the process that has started this one."""
        file.write_bytes(pickle.dumps(self))


def read(file: Path) -> Notes:
    """The notes of a process that this one has started."""
    notes: Notes = pickle.loads(file.read_bytes())
    return notes
