"""What a play is: settings as frozen data, and the sessions that it opens."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from ..records.section import RecordSection, register
from .call import Call
from .session import Session


class Stage(IntEnum):
    """The order of the plays: one of a lower stage plans first, and what it wraps has the others inside."""

    ROUTE = 1
    """Which model and provider."""
    SHAPE = 2
    """What the request says."""
    PREFIX = 3
    """What of the finished prompt the provider has read before, and how it is found again."""
    SEND = 4
    """When, and how often, it is sent."""
    ENCODE = 5
    """How its bytes travel."""


class Play:
    """One optimisation that can be switched on, traced and A/B-tested by itself.

    A subclass is a frozen dataclass: its fields are its settings, and its `repr` is its fingerprint in every record.
    `fastlane.engine.settings.settings` makes one that checks them. It is on when it is in the client's `plays`. A play
    that raises is logged once and skipped, and the call goes out as the caller wrote it; with
    `raise_play_errors=True` a `PlayError` is raised instead.
    """

    __slots__ = ()

    stage: ClassVar[Stage] = Stage.SHAPE
    needs_facts: ClassVar[bool] = False
    """Whether its sessions look at `call.facts`, which are then looked up."""
    routes: ClassVar[bool] = False
    """Whether its sessions may send a call to other upstreams, by `call.upstream`."""
    keeps_bodies: ClassVar[bool] = False
    """Whether it never changes a body, or what is inside, in place, as no play should: what was written of the body
    before it was planned then still holds, and it is not written twice."""
    may_duplicate: ClassVar[bool] = False
    """Whether its sessions may send a call a second time while the first attempt is under way."""

    reads: ClassVar[tuple[type, ...]] = ()
    """Classes of data that the application attaches to calls and its sessions look at. A client logs the
    `unread_warning` of other data."""

    section: ClassVar[type[RecordSection] | None] = None
    """Its part in the record of a call, which says how spans, metrics and reports show the play."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.section is not None:
            register(cls.__name__, cls.section)

    @property
    def spans_upstreams(self) -> bool:
        """Whether one session lasts for the whole call; otherwise each upstream of the call has its own."""
        return self.routes or self.may_duplicate

    @property
    def needs_transport(self) -> bool:
        """Whether some of it works only on connections of fastlane's transport: if others carry the calls, say so."""
        return False

    @property
    def checks_answers(self) -> bool:
        """Whether it checks answers against the schema of the call, so that a provider need not."""
        return False

    def open(self, call: Call) -> Session | None:
        """Begin this play's part in a call at one upstream, or in all of it (`spans_upstreams`); None without one."""
        return None
