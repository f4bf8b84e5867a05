"""What a play is: settings as frozen data, and pure functions around one call."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar, Protocol

from ..records.record import CallRecord
from ..records.section import RecordSection, register
from .call import Call
from .session import Session


class Stage(IntEnum):
    """When a play plans: a lower stage sees the call before a higher one."""

    ROUTE = 1
    """Which model and provider."""
    SHAPE = 2
    """What the request says."""
    PREFIX = 3
    """What of the finished prompt the provider has read before, and how it is found again."""
    ENCODE = 4
    """How its bytes travel."""
    SEND = 5
    """When, and how often, it is sent."""


class Watcher(Protocol):
    """Looks at one call's decoded stream while it arrives."""

    def see(self, event: Any) -> bool:
        """Look at one event (openai's typed object); True asks to stop the stream after it."""


class Play:
    """One optimisation that can be switched on, traced and A/B-tested by itself.

    A subclass is a frozen dataclass: its fields are its settings, validated in `__post_init__`, and its `repr` is its
    fingerprint in every record. It is on when it is in the client's `plays`. A play that raises is logged once and
    skipped, and the call goes out as the caller wrote it; with `strict=True` a `PlayError` is raised instead.
    """

    __slots__ = ()

    stage: ClassVar[Stage] = Stage.SHAPE
    needs_facts: ClassVar[bool] = False
    """Whether `plan` looks at `call.facts`, which are then looked up."""
    routes: ClassVar[bool] = False
    """Whether its sessions may send a call to other upstreams, by `call.upstream`, and `fastlane/auto` names them."""
    keeps_bodies: ClassVar[bool] = False
    """Whether it never changes a body, or what is inside, in place, as no play should: what was written of the body
    before it was planned then still holds, and it is not written twice."""
    may_duplicate: ClassVar[bool] = False
    """Whether its sessions may send a call a second time while the first attempt is under way."""
    compresses_bodies: ClassVar[bool] = False
    """Whether it may send bodies compressed, which counts where the time of an upload is predicted."""

    section: ClassVar[type[RecordSection] | None] = None
    """Its part in the record of a call, which says how spans, metrics and reports show the play."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.section is not None:
            register(cls.__name__, cls.section)

    @property
    def needs_transport(self) -> bool:
        """Whether some of it works only on connections of fastlane's transport: if others carry the calls, say so."""
        return False

    @property
    def checks_answers(self) -> bool:
        """Whether it checks answers against the schema of the call, so that a provider need not."""
        return False

    def encoded_share(self, origin: str, endpoint: str) -> float | None:
        """Return the share of its bytes that a body has once this play has encoded it; None where it does not."""
        return None

    def open(self, call: Call) -> Session | None:
        """Begin this play's part in a call; None if it has none."""
        return None

    def plan(self, call: Call) -> Call:
        """Rewrite the call before it is sent: once per call, pure, never overriding what the caller set."""
        return call

    def watch(self, call: Call) -> Watcher | None:
        """Return a watcher of this call's stream, or None."""
        return None

    def learn(self, record: CallRecord) -> None:
        """Take note of a call that is over."""
