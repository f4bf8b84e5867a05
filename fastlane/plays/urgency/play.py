"""05 Urgency: interactive, background and offline calls, each in its place, at its tier and pace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.errors import ConfigurationError
from fastlane.records.urgency import LEVELS, CallUrgency, Level

from .section import UrgencySection

if TYPE_CHECKING:
    from .session import UrgencySession
    from .tiers._memory import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Urgency(Play):
    """Keep apart calls that somebody waits for and calls that can wait.

    Its route says how urgent a call is (`Route(urgency=...)`), else the client that `with_urgency(...)` made, else
    `fastlane.urgency(...)` around it, else `default`. Calls to one origin, model and key share places and a pace in the
    whole process, whichever client makes them: interactive calls come first. With `tiers`, background and offline
    calls ask for a cheaper tier where the provider has one.

    Settings:

    - `default`: the level of calls of which nothing else is said
    - `tiers`: whether calls ask for service tiers: True for those of the provider's facts, or tiers by level
    - `limits`: whether calls wait for a place and keep to a pace; False: tiers alone
    - `max_concurrency`: the most calls at once; None: no limit until the provider refuses calls
    - `reserved`: the share of the places that only interactive calls may take
    - `ageing_s`: seconds in the queue after which a call counts as one level more urgent
    - `max_queued`: the most calls that wait at once; a further one gets QueueFullError
    - `max_wait_s`: the most seconds that a call waits, then QueueTimeoutError; None: its own time-out
    - `pacing`: whether the provider's rate limits are kept to
    - `requests_per_minute`, `tokens_per_minute`: the application's limits; None: learned from answers
    - `store`: where replicas share their pace, such as "redis://host:6379/0"; None: in this process

    Raises ConfigurationError for a setting that cannot be one.
    """

    stage: ClassVar[Stage] = Stage.SHAPE
    section = UrgencySection
    keeps_bodies: ClassVar[bool] = True
    needs_facts: ClassVar[bool] = True
    reads: ClassVar[tuple[type, ...]] = (CallUrgency,)

    default: Level = "interactive"
    """Of calls of which nothing else is said."""
    tiers: bool | Mapping[str, str | None] = False
    """Whether calls ask for service tiers. True: as the provider's facts say, the cheap one for background and offline
    calls, none for interactive ones. A mapping such as `{"interactive": "priority"}` says it by level, None for no
    tier; the facts say it for levels that are not named."""
    limits: bool = True
    """Whether calls wait for a place and keep to a pace; False: tiers alone."""
    max_concurrency: int | None = None
    """The most calls at once; None: no limit until the provider refuses calls."""
    reserved: float = 0.2
    """The share of the places that only interactive calls may take."""
    ageing_s: float = 30.0
    """After each such time in the queue, in seconds, a call counts as one level more urgent."""
    max_queued: int = 10_000
    """The most calls that wait at once; a further one gets QueueFullError."""
    max_wait_s: float | None = None
    """The most seconds that a call waits for its place; None: as long as its own time-out. Then QueueTimeoutError."""
    pacing: bool = True
    """Whether the provider's rate limits are kept to."""
    requests_per_minute: float | None = None
    """The application's limit, where it knows it; None: learned from answers."""
    tokens_per_minute: float | None = None
    """Input and output together; None: learned from answers."""
    store: str | None = None
    """Where replicas share their pace, such as "redis://host:6379/0" (extra `redis`); None: in this process."""
    admission: Any = field(init=False, repr=False, compare=False)
    """The settings of its places."""
    memory: Memory = field(init=False, repr=False, compare=False)
    """What the play has learned of the sizes of calls: it is shared by all clients that this object is given to."""

    def __post_init__(self) -> None:
        if self.default not in LEVELS:
            raise ConfigurationError(f"Urgency(default=...) takes {_LEVELS}, got {self.default!r:.80}")
        _check_tiers(self.tiers)
        for name in ("limits", "pacing"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigurationError(f"Urgency({name}=...) takes True or False, got {getattr(self, name)!r:.80}")
        most: Any = self.max_wait_s
        if most is not None and (type(most) not in (int, float) or not isfinite(most) or most < 0):
            raise ConfigurationError(f"Urgency(max_wait_s=...) takes seconds from 0, or None, got {most!r:.80}")
        # With the client and not with `import fastlane`.
        from . import session  # noqa: F401
        from .admission._settings import AdmissionSettings
        from .tiers._memory import Memory

        try:
            settings = AdmissionSettings(**{name: getattr(self, name) for name in _ADMISSION})
        except ConfigurationError as error:
            raise ConfigurationError(f"Urgency: {error}") from None
        if isinstance(self.tiers, Mapping):
            object.__setattr__(self, "tiers", dict(self.tiers))
        object.__setattr__(self, "admission", settings if self.limits else None)
        object.__setattr__(self, "memory", Memory(self.store))

    def __repr__(self) -> str:
        # The fingerprint: what differs from the defaults, without the address of a store, which may hold a password.
        shown = [f"{name}={value!r}" for name, value in self._given() if name not in _HIDDEN]
        shown += [f"{name}=..." for name in _HIDDEN if getattr(self, name) is not None]
        return f"Urgency({', '.join(shown)})"

    def __hash__(self) -> int:
        return hash(repr(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is made with the same settings, and has learned nothing."""
        return partial(Urgency, **dict(self._given())), ()

    def _given(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in _SETTINGS if getattr(self, name) != _DEFAULTS[name]]

    def open(self, call: Call) -> UrgencySession:
        """Begin the play's part in a call."""
        from .session import UrgencySession

        return UrgencySession(self, call)


_LEVELS = '"interactive", "background" or "offline"'
_HIDDEN = ("store",)
_ADMISSION = (
    "max_concurrency", "reserved", "ageing_s", "max_queued", "pacing", "requests_per_minute", "tokens_per_minute",
)  # fmt: skip
_SETTINGS = tuple(name for name, one in Urgency.__dataclass_fields__.items() if one.init)
_DEFAULTS = {name: Urgency.__dataclass_fields__[name].default for name in _SETTINGS}


def _check_tiers(tiers: Any) -> None:
    if isinstance(tiers, bool):
        return
    if not isinstance(tiers, Mapping) or not all(
        level in LEVELS and (tier is None or (isinstance(tier, str) and tier)) for level, tier in tiers.items()
    ):
        raise ConfigurationError(
            "Urgency(tiers=...) takes True, False or tiers by level, "
            f'{{"interactive": "priority", "background": None}}, with the levels {_LEVELS}, got {tiers!r:.120}'
        )
