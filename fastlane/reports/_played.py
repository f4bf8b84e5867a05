"""On which calls each play did something, and what came of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..records.section import section_of
from ._groups import Group, group_of
from ._ledger import ledger_of

if TYPE_CHECKING:
    from ..records.record import CallRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What one play did."""

    play: str
    """The name of its class."""
    on: int
    """Calls of clients that have it."""
    acted: int | None
    """Of these, the calls on which it did something; None for a play whose section does not say."""
    effect: str | None
    """What came of it, by the records of these calls; None where there are none."""
    group: Group
    """Where the time of the calls went on which it did something. That they differ from others says nothing of the play
    alone: what it is worth is for an A/B comparison to say."""

    def to_dict(self) -> dict[str, Any]:
        """The play as plain JSON data."""
        return {
            "play": self.play,
            "on": self.on,
            "acted": self.acted,
            "effect": self.effect,
            "calls": self.group.to_dict(),
        }


def plays_of(records: Sequence[CallRecord], opening_s: Mapping[str, float]) -> tuple[Played, ...]:
    """What each play did that is on in any of these calls, in the order in which clients have them."""
    on: dict[str, list[CallRecord]] = {}
    for record in records:
        for name in dict.fromkeys([fingerprint.partition("(")[0] for fingerprint in record.plays]):
            on.setdefault(name, []).append(record)
    return tuple(_played(name, on[name], opening_s) for name in on)


def _played(name: str, on: Sequence[CallRecord], opening_s: Mapping[str, float]) -> Played:
    section = section_of(name)
    says = [None if section is None else section.acted(record) for record in on]
    acted = [record for record, did in zip(on, says, strict=True) if did]
    return Played(
        play=name,
        on=len(on),
        acted=len(acted) if any(did is not None for did in says) else None,
        effect=section.effect(acted, ledger_of(acted, opening_s)) if section is not None and acted else None,
        group=group_of(acted),
    )
