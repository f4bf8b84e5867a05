"""An experiment on live calls, as an application makes one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._clock import wall_ns
from .._environment import is_disabled
from ..errors import ConfigurationError
from ..plays import Play
from ..records.record import CallRecord
from ._assignment import Drawn, draw, key_of
from ._definition import arms_of, defined, shares_of, text
from ._document import Document, EndedArm
from ._guards import Guard
from ._judging import ending
from ._keepers import MemoryKeeper, keeper_of
from ._ledger import Ledger
from ._metrics import METRICS, PARSING, PRICE, QUALITY, SLOW, Prices, parse_failure
from ._report import ExperimentReport, report_of
from ._thread import Counting
from ._units import UnitOf, checked

if TYPE_CHECKING:
    from ..plays.routing.catalog import Catalog


class Experiment:
    """Sends a share of a client's calls through other plays, and says what that does: `OpenAI(experiment=...)`.

    `arms` are the plays of each arm, the reference first; `share` is the share of units, 0 to 1, of each other one.
    `unit` says where the id of a call's unit stands, if not in `with fastlane.experiments.unit(...)`: the name of a
    field of the body such as "user", or a function of the body. Without one, each call is a unit of its own. `store` is
    a file, or the address of a Redis server, which all processes share that make calls of the experiment. `guards` end
    an arm that is shown to be worse, and `fuse` one whose calls fail so often in a row (None: never); `on_end` is
    called with the `EndedArm`, in each process that hears of it, in a thread of fastlane's. `catalog` has the prices of
    models. `salt` is a secret that keeps whoever knows ids from telling which unit is which in spans.

    What cannot work is a ConfigurationError, and so is a definition that differs from the one that the store has under
    this name, except for larger shares. A store that is away is none: calls go to the reference arm until it was read.
    """

    def __init__(
        self,
        name: str,
        arms: Mapping[str, Iterable[Play]],
        *,
        share: Mapping[str, float],
        store: str | Path,
        unit: UnitOf = None,
        guards: Sequence[Guard] = (),
        fuse: int | None = 20,
        on_end: Callable[[EndedArm], Any] | None = None,
        catalog: Catalog | None = None,
        salt: str | None = None,
    ) -> None:
        self.name = text("a name", name, "encoding-2026-11")
        self.arms = arms_of(arms)
        self.reference = next(iter(self.arms))
        shares = shares_of(share, self.arms)
        self._unit_of = checked(unit)
        if salt is not None and (not isinstance(salt, str) or not salt):
            raise ConfigurationError("Experiment(salt=...) takes a text that is not empty")
        if on_end is not None and not callable(on_end):
            raise ConfigurationError(f"Experiment(on_end=...) takes a function of one EndedArm, got {on_end!r:.60}")
        if fuse is not None and (isinstance(fuse, bool) or not isinstance(fuse, int) or fuse < 2):
            raise ConfigurationError(
                f"Experiment(fuse=...) takes a number of calls, at least 2, or None, got {fuse!r:.60}"
            )
        self.guards = self._checked_guards(guards)
        prices = _prices(catalog)
        routes = any(play.routes for plays in self.arms.values() for play in plays)
        if not prices and not routes and any(guard.metric == METRICS[PRICE].name for guard in self.guards):
            raise ConfigurationError(
                'Guard("price") needs prices: give Experiment(catalog=...) one whose models have a price'
            )
        slow = [guard.above for guard in self.guards if guard.metric == METRICS[SLOW].name]
        if len(set(slow)) > 1:
            raise ConfigurationError("Experiment(guards=...) has two limits for time_to_first_token_p95: give one")
        self._key = key_of(name, salt)
        keeper = keeper_of(store, name)
        self._is_disabled = is_disabled()
        self._ledger = Ledger(
            name=name,
            definition=defined(
                name=name, arms=self.arms, unit=unit, salt=salt, slow_s=float(slow[0]) if slow and slow[0] else None
            ),
            shares=shares,
            keeper=MemoryKeeper() if self._is_disabled else keeper,
            guards=self.guards,
            fuse=fuse,
            prices=prices,
            on_end=on_end,
        )
        self._counting = Counting(self._ledger, self)
        self._ledger.begin()

    @staticmethod
    def _checked_guards(guards: Any) -> tuple[Guard, ...]:
        if isinstance(guards, Guard | str) or not isinstance(guards, Iterable):
            raise ConfigurationError(
                f'Experiment(guards=...) takes a list such as [Guard("error_rate")], got {guards!r:.60}'
            )
        found = tuple(guards)
        for guard in found:
            if not isinstance(guard, Guard):
                raise ConfigurationError(
                    f'Experiment(guards=...) takes guards such as Guard("error_rate"), got {guard!r:.60}'
                )
        return found

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}, arms={list(self.arms)})"

    def arm_of(self, unit: str) -> str | None:
        """The arm that calls of a unit go to now; None while the store has not been read.

        Raises ConfigurationError for what is no id.
        """
        if not isinstance(unit, str) or not unit:
            raise ConfigurationError(f"arm_of() takes the id of a unit, got a {type(unit).__name__}")
        view = self._ledger.view
        if view is None:
            return None
        arm = view.allocation.arm_at(self._drawn(unit).point)
        return self.reference if arm in view.ended else arm

    def _drawn(self, unit: str) -> Drawn:
        return draw(self._key, unit)

    def report(self) -> ExperimentReport:
        """What is known so far, of all processes: `print()` shows it.

        Asks the store, which takes a few milliseconds; where that is away, says so and what this process knows.
        """
        self.flush()
        problem = "fastlane is disabled (FASTLANE_DISABLED)" if self._is_disabled else self._ledger.problem
        return report_of(self.name, self.arms, self._ledger.known(), problem)

    def score(self, call: CallRecord | str, *, quality: float | None = None, parsed: bool | None = None) -> bool:
        """Say how good the answer to a call was, 0 to 1, or whether it could be read; whether that counts.

        The call is named by its record, by its id (`record.call_id`) or by that of its answer (`answer.id`). It does
        not count, and False comes back, for a call that is not of the experiment, not one of this process's last 20,000
        (where no record is given), of an earlier stage, of an arm that has ended, or scored before; nor does
        `parsed` for one that has no whole answer. Raises ConfigurationError for what is no score.
        """
        scores: list[tuple[int, float, float]] = []
        if quality is not None:
            if not isinstance(quality, int | float) or not isfinite(quality) or not 0 <= quality <= 1:
                raise ConfigurationError(f"score(quality=...) takes a number from 0 to 1, got {quality!r:.60}")
            scores.append((QUALITY, float(quality), 1.0))
        if parsed is not None:
            if not isinstance(parsed, bool):
                raise ConfigurationError(f"score(parsed=...) takes True or False, got a {type(parsed).__name__}")
            # Counted already, as one that could be read.
            scores.append((PARSING, float(not parsed), 0.0))
        if not scores:
            raise ConfigurationError("score() takes quality=..., 0 to 1, or parsed=..., True or False")
        if not isinstance(call, CallRecord | str):
            raise ConfigurationError(
                f"score() takes a call's record, its call_id or the id of its answer, got a {type(call).__name__}"
            )
        ledger = self._ledger
        ledger.count_waiting()
        found = ledger.recent.named(call.call_id if isinstance(call, CallRecord) else call)
        if found is not None:
            call_id, arm, unit_id_hash, stage = found.call_id, found.arm, found.unit_id_hash, found.stage
            failure = found.parse_failure
        elif isinstance(call, CallRecord) and (told := call.experiment) is not None:
            if told.name != self.name or told.why is not None:
                return False
            call_id, arm, unit_id_hash, stage = call.call_id, told.arm, told.unit_id_hash, told.stage
            failure = parse_failure(call)
        else:
            return False
        counts = False
        for metric, value, count in scores:
            if metric == PARSING and (failure is None or value <= failure):
                # No answer at all, or counted as that already.
                counts = counts or failure is not None
                continue
            if ledger.recent.is_first(call_id, metric):
                counts = ledger.add_score(arm, unit_id_hash, stage, metric, value, count=count) or counts
        return counts

    def ramp(self, **shares: float) -> None:
        """Change the shares of arms, in all processes: `experiment.ramp(encoding=0.3)`.

        Units that are in an arm which grows stay in it. Counting begins anew: calls before and after are not of the
        same time. Arms that are not named keep their shares. Raises ConfigurationError for shares that cannot be, and
        FastlaneError where the store is away.
        """
        for arm in shares:
            self._named(arm)

        def act(document: Document) -> None:
            wanted = shares_of({**document.shares, **shares}, self.arms)
            if wanted != document.shares:
                document.ramp(wanted, wall_ns())

        self._ledger.act(act)

    def end(self, arm: str, *, reason: str = "the application said so") -> None:
        """End an arm, in all processes: its units go to the reference. Raises as `ramp` does."""
        self._named(arm)

        def act(document: Document) -> None:
            if arm not in document.ended:
                document.ended[arm] = ending(
                    document, arm, by="application", reason=text("a reason", reason, "too dear")
                )

        self._ledger.act(act)

    def resume(self, arm: str) -> None:
        """Let an arm that has ended have its units back, in all processes; counting begins anew. Raises as `ramp`."""
        self._named(arm)

        def act(document: Document) -> None:
            if arm not in document.ended:
                raise ConfigurationError(f"resume({arm!r}): this arm of {self.name!r} has not ended")
            del document.ended[arm]
            document.next_stage(wall_ns())

        self._ledger.act(act)

    def _named(self, arm: str) -> None:
        if arm not in self.arms or arm == self.reference:
            others = ", ".join(map(repr, list(self.arms)[1:]))
            raise ConfigurationError(f"expected the name of an arm beside the reference ({others}), got {arm!r:.60}")

    def flush(self) -> bool:
        """Tell the store of all calls that are over; whether that was possible. A thread does so every second."""
        # Twice: what may have arrived already is sent again by itself.
        return self._ledger.exchange() and self._ledger.exchange()

    def close(self) -> None:
        """Flush, and end the thread; calls go on to their arms, and are not counted any more."""
        self._counting.close()


def _prices(catalog: Any) -> Prices:
    if catalog is not None:
        from ..plays.routing.catalog import Catalog

        if not isinstance(catalog, Catalog):
            raise ConfigurationError(f"Experiment(catalog=...) takes a Catalog, got a {type(catalog).__name__}")
    return Prices(catalog)
