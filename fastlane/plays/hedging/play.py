"""01 Route: a second attempt for a call whose first token is late, within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.errors import ConfigurationError
from fastlane.protocol.endpoints import GENERATING
from fastlane.records.record import CallRecord

from .section import HedgingSection

if TYPE_CHECKING:
    from fastlane.engine.session import Session

    from ._memory import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Hedging(Play):
    """Make a second attempt when the first token of the first is later than usual, and take whose content comes first.

    The attempt that loses is reset. What second attempts cost stays within a share of all tokens. None is made while
    most answers are late, and none for calls with side effects: answers that the provider keeps, background work, tools
    that the provider runs, and tools that the application declares.
    Raises ConfigurationError for a setting that cannot work.
    """

    stage: ClassVar[Stage] = Stage.SEND
    section = HedgingSection
    keeps_bodies: ClassVar[bool] = True
    may_duplicate: ClassVar[bool] = True

    budget: float = 0.05
    """Tokens that second attempts may cost, as a share of the tokens of all calls, input and output."""
    quantile: float = 0.95
    """A first token is late beyond this quantile of those of the upstream."""
    minimum_delay_s: float = 0.1
    """Seconds before which no first token is late."""
    not_with_tools: Sequence[str] = ()
    """Names of tools: calls that offer one of them get no second attempt. `"hedge": False` in a tool says the same."""
    store: str | None = None
    """Where replicas share the first tokens that they see, such as "redis://host:6379/0" (extra `redis`); None: in this
    process."""
    memory: Memory = field(init=False, repr=False, compare=False)
    """What the play has learned: it is shared by all clients that this object is given to."""

    def __post_init__(self) -> None:
        _number("budget", self.budget, 0, 1, "a share of all tokens above 0, up to 1 (0.05 is 5 %)")
        if not 0.5 <= _number("quantile", self.quantile, 0, 1, _QUANTILE) < 1:
            raise ConfigurationError(f"Hedging(quantile=...) takes {_QUANTILE}, got {self.quantile!r}")
        minimum: Any = self.minimum_delay_s
        if type(minimum) not in (int, float) or not isfinite(minimum) or minimum < 0:
            raise ConfigurationError(f"Hedging(minimum_delay_s=...) takes seconds from 0, got {minimum!r:.80}")
        names: Any = self.not_with_tools
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise ConfigurationError(
                f'Hedging(not_with_tools=...) takes names of tools, ("send_mail",), got {names!r:.80}'
            )
        # With the client and not with `import fastlane`.
        from ._memory import Memory, Settings

        object.__setattr__(self, "not_with_tools", tuple(names))
        settings = Settings(
            budget=self.budget,
            quantile=self.quantile,
            minimum_delay_s=self.minimum_delay_s,
            not_with_tools=frozenset(names),
        )
        object.__setattr__(self, "memory", Memory(settings, self.store))

    def __repr__(self) -> str:
        # The fingerprint, without the address of a store, which may hold a password.
        shown = [f"{name}={getattr(self, name)!r}" for name in _SHOWN]
        if self.store is not None:
            shown.append("store=...")
        return f"Hedging({', '.join(shown)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is made with the same settings: another replica, where there is a store."""
        return partial(Hedging, **{name: getattr(self, name) for name in (*_SHOWN, "store")}), ()

    @property
    def needs_transport(self) -> bool:
        """True: on other connections the attempt that loses could not be reset."""
        return True

    def open(self, call: Call) -> Session | None:
        """Take part in calls that generate text."""
        from .session import HedgingSession

        return HedgingSession(self.memory) if call.endpoint in GENERATING else None

    def learn(self, record: CallRecord) -> None:
        """Take note of how late first tokens were, and of what second attempts cost."""
        self.memory.note(record)


_SHOWN = ("budget", "quantile", "minimum_delay_s", "not_with_tools")
_QUANTILE = "a quantile from 0.5 to below 1 (0.95: the slowest twentieth is late)"


def _number(name: str, value: Any, above: float, most: float, wanted: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not above < value <= most:
        raise ConfigurationError(f"Hedging({name}=...) takes {wanted}, got {value!r:.80}")
    return value
