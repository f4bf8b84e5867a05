"""The base class of plays: frozen settings, and `open()`, which makes a session for each call."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from ..records.section import RecordSection, register
from .call import Call
from .session import Session


class Stage(IntEnum):
    """The order of plays: a lower stage plans first, and its wrapping hooks are outside those of a higher stage."""

    ROUTE = 1
    """Which model and provider."""
    SHAPE = 2
    """What the request says."""
    PREFIX = 3
    """Which prefix of the finished prompt the provider has cached, and how it is found again."""
    SEND = 4
    """When, and how often, it is sent."""
    ENCODE = 5
    """How its bytes travel."""


class Play:
    """One optimisation that can be switched on, traced and A/B-tested by itself.

    A subclass is a frozen dataclass: its fields are its settings, and its `repr` is its fingerprint in every record.
    The decorator `fastlane.engine.settings.settings` makes one that validates its settings. All threads and tasks of a
    client share the play: state of one call belongs into the session. A hook that raises is logged once and skipped;
    with `raise_play_errors=True` a `PlayError` is raised instead.
    """

    __slots__ = ()

    stage: ClassVar[Stage] = Stage.SHAPE
    needs_facts: ClassVar[bool] = False
    """Whether its sessions read `call.facts`; otherwise they are not looked up."""
    routes: ClassVar[bool] = False
    """Whether its sessions may send a call to further upstreams (`call.upstream`)."""
    keeps_bodies: ClassVar[bool] = False
    """Whether it never changes a body or anything inside it in place. The engine then reuses the bytes that were
    written before planning."""
    may_duplicate: ClassVar[bool] = False
    """Whether its sessions may send a call a second time while the first attempt is running."""

    reads: ClassVar[tuple[type, ...]] = ()
    """Classes of attached data (`Call.data`) that its sessions read. The client logs the `unread_warning` of data that
    no play reads."""

    section: ClassVar[type[RecordSection] | None] = None
    """The class of the record section that its sessions return from `close()`."""

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
        """Whether it needs fastlane's transport. If another transport carries the calls, the client logs a warning."""
        return False

    @property
    def checks_answers(self) -> bool:
        """Whether it validates answers against the schema of the call, so that the provider need not."""
        return False

    def open(self, call: Call) -> Session | None:
        """Return a session for a call at one upstream, or for the whole call (`spans_upstreams`); None to take no part.

        Raises CallRefusedError to refuse the call.
        """
        return None
