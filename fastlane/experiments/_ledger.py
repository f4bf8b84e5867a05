"""Count the calls of an experiment off their threads, share what was counted, and end arms."""

from __future__ import annotations

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._clock import wall_ns
from ..errors import ConfigurationError, FastlaneError
from ._assignment import View, bucket_of
from ._definition import difference, first_document, reconciled
from ._document import Document, EndedArm
from ._fuse import Fuse
from ._guards import Guard
from ._judging import OnEnd, announce, ending, judged
from ._keepers import Keeper
from ._metrics import PARSING, Prices, values_of
from ._recent import Recent
from ._sums import Sums

if TYPE_CHECKING:
    from ..engine.observation import Observation
    from ._assigned import Assigned

log = logging.getLogger("fastlane")

# Calls that are over and not counted yet; the thread counts them every second. Beyond that, the oldest is not counted.
_MOST_WAITING = 50_000


class Ledger:
    """The account of one experiment in this process."""

    def __init__(
        self,
        *,
        name: str,
        definition: Mapping[str, Any],
        shares: Mapping[str, float],
        keeper: Keeper,
        guards: Sequence[Guard],
        fuse: int | None,
        prices: Prices,
        on_end: OnEnd | None,
    ) -> None:
        self.name = name
        self._definition = definition
        self._shares = dict(shares)
        self._keeper = keeper
        self._guards = tuple(guards)
        self._prices = prices
        self._on_end = on_end
        self.fuse = Fuse(fuse, reference=definition["arms"][0][0])
        self.recent = Recent()
        self.view: View | None = None
        """None until the store was read: it alone knows which arms have ended."""
        self.is_counting = True
        self.problem: str | None = None
        """What is wrong with the store; None where nothing is."""
        self._document: Document | None = None
        self._version: int | None = None
        self._is_reconciled = False
        self._waiting: deque[tuple[Observation, Assigned]] = deque(maxlen=_MOST_WAITING)
        self._pending: dict[str, Sums] = {}
        self._sending: tuple[int, int, dict[str, Sums]] | None = None
        """Batch, stage and sums that may have arrived, or not."""
        self._batch = 0
        self._writer = secrets.token_hex(8)
        self._decided: dict[str, EndedArm] = {}
        """Arms that ended here, which the store has not been told of."""
        self._announced: set[str] = set()
        self._lock = threading.RLock()
        """Held while something is counted: for microseconds, since the application's own threads do so too."""
        self._asking = threading.RLock()
        """Held while the store is asked."""

    # On the calls' threads

    def over(self, call: Observation, assigned: Assigned) -> None:
        """A call is over. Neither waits nor raises."""
        if not self.is_counting:
            return
        self._waiting.append((call, assigned))
        view = self.view
        # What an arm did before it was resumed is not held against it.
        if view is None or assigned.stage != view.stage:
            return
        if self.fuse.is_blown(call.outcome, assigned.arm) and assigned.arm not in view.ended:
            # At once in this process; the thread tells the others.
            self.view = view._replace(ended=view.ended | {assigned.arm})

    # With the store

    def begin(self) -> None:
        """Read the store for the first time. Raises ConfigurationError where it has another definition."""
        try:
            self.exchange(raises=True)
        except ConfigurationError:
            raise
        except Exception as error:  # noqa: BLE001 - calls go on without a store
            self._is_away(error)

    def exchange(self, act: Callable[[Document], None] | None = None, *, raises: bool = False) -> bool:
        """Count what is over, tell the store, and learn what it knows; whether the store could be asked.

        `act` changes the shared state.
        """
        ended: list[EndedArm] = []
        try:
            with self._asking:
                try:
                    self.count_waiting()
                    self._ask_store(act)
                except Exception as error:
                    self._go_on_alone()
                    if raises:
                        raise
                    self._is_away(error)
                    return False
                else:
                    self._is_back()
                    return True
                finally:
                    ended = self._newly_ended()
        finally:
            announce(ended, self._on_end)

    def try_exchange(self, limit_s: float) -> None:
        """Exchange, unless somebody else is at it for longer than that."""
        if self._asking.acquire(timeout=limit_s):
            try:
                self.exchange()
            finally:
                self._asking.release()

    def _ask_store(self, act: Callable[[Document], None] | None) -> None:
        with self._lock:
            if self._sending is None and self._pending and self.view is not None:
                self._batch += 1
                self._sending, self._pending = (self._batch, self.view.stage, self._pending), {}
            decided = dict(self._decided)
        if act is None and self._sending is None and not decided and self._is_reconciled:
            kept = self._keeper.read(self._version)
            if kept is None:
                return
            if kept.document is not None:
                document = Document.from_bytes(kept.document)
                self._check(document)
                self._adopt(document, kept.version)
                return
        changed: list[Document] = []

        def change(written: bytes | None) -> bytes | None:
            changed[:] = [self._changed(written, decided, act)]
            return changed[0].to_bytes()

        kept = self._keeper.change(change)
        with self._lock:
            self._sending = None
            self._decided = {arm: one for arm, one in self._decided.items() if arm not in decided}
            self._is_reconciled = True
            self._adopt(changed[0], kept.version)

    def _check(self, document: Document) -> None:
        problem = difference(self.name, self._definition, document.definition)
        if problem is not None:
            raise ConfigurationError(problem)

    def _changed(
        self, written: bytes | None, decided: Mapping[str, EndedArm], act: Callable[[Document], None] | None
    ) -> Document:
        """The shared state, with what this process has to say."""
        if written is None and self._document is not None:
            # It was deleted in the meantime: shares, stage, ends and sums are those that were last heard of.
            document = self._document.copy()
        elif written is None:
            document = first_document(self._definition, self._shares, wall_ns())
        else:
            document = Document.from_bytes(written)
            self._check(document)
            if not self._is_reconciled:
                reconciled(self.name, document, self._shares, wall_ns())
        if self._sending is not None:
            batch, stage, sums = self._sending
            document.count(self._writer, batch, stage, sums)
        for arm, ended in decided.items():
            if ended.stage == document.stage:
                document.ended.setdefault(arm, ended)
        if act is not None:
            act(document)
        for ended in judged(document, self._guards):
            document.ended[ended.arm] = ended
        return document

    def _adopt(self, document: Document, version: int) -> None:
        with self._lock:
            if self._document is None or document.stage != self._document.stage:
                self._pending = {}
                self.fuse.reset()
            self._document, self._version = document, version
            self._announced &= document.ended.keys()  # one that was resumed may end again
            ended = frozenset({*document.ended, *self._decided, *self.fuse.blown})
            self.view = View(document.allocation, document.stage, ended)

    def _go_on_alone(self) -> None:
        """The store is away: guards see what is known here."""
        document = self.known()
        if document is not None:
            for ended in judged(document, self._guards):
                self._decide(ended)

    def _decide(self, ended: EndedArm) -> None:
        with self._lock:
            self._decided[ended.arm] = ended
            if self.view is not None:
                self.view = self.view._replace(ended=self.view.ended | {ended.arm})

    # Counting

    def _count_waiting(self) -> None:
        while True:
            try:
                call, assigned = self._waiting.popleft()
            except IndexError:
                break
            try:
                self._count(call, assigned)
            except Exception as error:  # noqa: BLE001 - one call that cannot be read is one that is not counted
                log.debug("a call of the experiment %r was not counted (%s)", self.name, type(error).__name__)
        for arm in self.fuse.blown:
            is_told = arm in self._decided or (self._document is not None and arm in self._document.ended)
            document = None if is_told else self.known()
            if document is not None:
                self._decide(ending(document, arm, by="fuse", reason=self.fuse.reason))

    def _count(self, call: Observation, assigned: Assigned) -> None:
        view = self.view
        if view is None or assigned.stage != view.stage:
            return
        values = values_of(call, self._prices, self._definition["slow_s"])
        self.recent.remember(call.call_id, call.answer.response_id, assigned, dict(values).get(PARSING))
        sums = self._sums_of(assigned.arm)
        sums.saw(assigned.unit_id_hash, is_lone=assigned.is_lone)
        bucket = bucket_of(assigned.unit_id_hash)
        for metric, value in values:
            self._add(sums, metric, bucket, value)

    def add_score(self, arm: str, unit_id_hash: str, stage: int, metric: int, value: float, *, count: float) -> bool:
        """Count a score of the application's; whether it is of this stage."""
        with self._lock:
            view = self.view
            if view is None or stage != view.stage or arm in view.ended:
                return False
            self._sums_of(arm).add(metric, bucket_of(unit_id_hash), value, count=count)
            return True

    def count_waiting(self) -> None:
        """Count the calls that are over."""
        with self._lock:
            self._count_waiting()

    def _sums_of(self, arm: str) -> Sums:
        sums = self._pending.get(arm)
        if sums is None:
            sums = self._pending[arm] = Sums()
        return sums

    def _add(self, sums: Sums, metric: int, bucket: int, value: float) -> None:
        # By limits that were set before this call, and are the same in all arms.
        limits = None if self._document is None else self._document.limits.get(metric)
        if limits is not None:
            value = min(max(value, limits[0]), limits[1])
        sums.add(metric, bucket, value)

    # What it says

    def known(self) -> Document | None:
        """What is known, calls included that the store has not been told of. Not to be changed by others."""
        with self._lock:
            if self._document is None:
                return None
            document = self._document.copy()
            if self._sending is not None:
                document.count(self._writer, *self._sending)
            document.count(self._writer, self._batch + 1, document.stage, self._pending)
            document.ended.update(self._decided)
            return document

    def _newly_ended(self) -> list[EndedArm]:
        with self._lock:
            known = {} if self._document is None else self._document.ended
            fresh = [one for arm, one in {**known, **self._decided}.items() if arm not in self._announced]
            self._announced.update(one.arm for one in fresh)
            return fresh

    # Trouble

    def _is_away(self, error: Exception) -> None:
        # Its class alone: what a server or a library says may quote what it was given.
        told = str(error) if isinstance(error, ConfigurationError) else f"its store is away ({type(error).__name__})"
        if isinstance(error, ConfigurationError):
            self.view = None  # another experiment is kept under its name
        if self.problem is None:
            goes = "go to their arms by what is known here" if self.view is not None else "go to the reference arm"
            log.warning("the experiment %r: %s; calls %s, and it is tried again", self.name, told, goes)
        self.problem = told

    def _is_back(self) -> None:
        if self.problem is not None:
            self.problem = None
            log.info("the store of the experiment %r is back", self.name)

    def act(self, act: Callable[[Document], None]) -> None:
        """Change the shared state. Raises what `act` does, and FastlaneError where the store is away."""
        try:
            self.exchange(act, raises=True)
        except FastlaneError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the store's client raises
            self._is_away(error)
            raise FastlaneError(
                f"the store of the experiment {self.name!r} is away ({type(error).__name__}), and nothing was changed"
            ) from None

    # Forks

    @property
    def lock(self) -> threading.RLock:
        """Held while the store is asked: a fork waits for that."""
        return self._asking

    def begin_in_child(self) -> None:
        """What the parent has counted, the parent will tell."""
        self._lock, self._asking = threading.RLock(), threading.RLock()
        self._waiting.clear()
        self._pending, self._sending, self._batch = {}, None, 0
        self._writer = secrets.token_hex(8)
        self._keeper.begin_in_child()

    def close(self) -> None:
        """Let go of a connection."""
        with self._asking:
            self._keeper.close()
