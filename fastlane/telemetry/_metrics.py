"""Take what has ended from the thread that ended it at once, and record it where nobody waits.

Whoever tells has no lock to wait for: a garbage collection may end a call in the middle of anything, also of this.
"""

from __future__ import annotations

import _thread
import atexit
from collections import deque
from typing import Any, Final

from opentelemetry.metrics import get_meter_provider

from .._fork import in_child
from ..engine.pipeline import log
from ..records.section import registrations
from . import _gate, _metric_names as metrics, _settings
from ._ended import EndedAction, EndedCall, Told, Unmade
from ._instruments import Instruments
from ._labels import Labels
from ._measures import Measures

MOST_PENDING: Final = 2_048
"""A record is 2 kB and a stream's stamps: some megabytes, where nothing is recorded for long."""

_MANY: Final = 256
"""Are recorded at once, and fewer together with those of the next moment."""

_MOMENT_S: Final = 0.5

_READY_S: Final = 0.05
"""How long the first call waits for its instruments. They are made in a few milliseconds, unless a reader is collecting
just then, for whose callbacks no call waits."""

_AT_THE_END_S: Final = 1.0
"""How long a reader or the end of the process waits for somebody else's recording."""

_MOST_PROVIDERS: Final = 8
"""Whose instruments are kept: an application has one, and tests have one each."""

_NO_LABELS: Final[dict[str, Any]] = {}


class _Telling:
    """What was told and is not recorded yet, and the thread that records it."""

    def __init__(self) -> None:
        self._labels = Labels()
        self._measures = Measures(self._labels)
        self._instruments: list[tuple[Any, Instruments | None]] = []
        self._last: tuple[Any, bool, int] | None = None
        """The provider that was asked for last, whether it measures, and how many sections there were."""
        self._logged: set[str] = set()
        self.start_over()

    def start_over(self) -> None:
        """In a child process: what its parent was told is its parent's, and so are locks and thread."""
        for _, instruments in self._instruments:
            if instruments is not None:
                instruments.forget()
        self._pending: deque[tuple[_settings.TelemetrySettings, Told]] = deque(maxlen=MOST_PENDING)
        self._dropped = 0
        self._recording = _thread.allocate_lock()
        self._recorder: int | None = None
        self._starting = _thread.allocate_lock()
        self._making = _thread.allocate_lock()
        self._news, self._much = _shut(), _shut()
        self._runs = self._sleeps = self._rests = False

    # The thread that tells

    def tell(self, told: Told) -> None:
        """Have it recorded, soon: at the latest when a reader collects. Waits for nothing and raises nothing."""
        pending = self._pending
        if len(pending) == MOST_PENDING:
            self._dropped += 1
        pending.append((_settings.current(), told))
        if self._sleeps:
            self._sleeps = False
            _open(self._news)
        elif self._rests and len(pending) >= _MANY:
            self._rests = False
            _open(self._much)
        elif not self._runs:
            self._start()

    def get_ready(self) -> bool:
        """Whether anybody measures; see to it that what is told from now on is seen by a reader that collects then.

        To be asked where a call begins, and never by a finaliser.
        """
        settings = _settings.current()
        provider = settings.meter_provider
        if provider is None:
            provider = _gate.meter_provider()
        last, registered = self._last, registrations()
        if last is not None and last[0] is provider and last[2] == registered:
            return last[1]
        if _gate.is_placeholder(provider):
            self._last = (provider, False, registered)
            return False
        found = self._found(provider)
        if found is None or (found[1] is not None and not found[1].is_complete):
            self._make_aside(provider)
        self._last = (provider, True, registered)
        return True

    def _make_aside(self, provider: Any) -> None:
        """Make the provider's instruments in another thread, and wait for it a little."""
        made = _shut()

        def make() -> None:
            try:
                self._make(provider)
            finally:
                made.release()

        try:
            _thread.start_new_thread(make, ())
        except RuntimeError:  # no further thread to be had
            self._make(provider)
        else:
            made.acquire(timeout=_READY_S)

    def _start(self) -> None:
        if not self._starting.acquire(blocking=False):
            return
        try:
            _thread.start_new_thread(self._run, ())
            self._runs = True
        except RuntimeError:  # no further thread to be had, or the interpreter ends: readers see to it
            self._starting.release()

    # The thread that records

    def _run(self) -> None:
        while True:
            try:
                self._wait_and_record()
            except BaseException as error:  # noqa: BLE001 - not even for SystemExit of an application's own sampler
                self._went_wrong("recording", error)

    def _wait_and_record(self) -> None:
        self._sleeps = True
        if not self._pending:
            self._news.acquire()
        self._sleeps = False
        self._prepare()
        self._rests = True
        if len(self._pending) < _MANY:
            self._much.acquire(timeout=_MOMENT_S)
        self._rests = False
        self._record_all()

    def _prepare(self) -> None:
        """Make the instruments for what was told first, if they are missing: a reader may collect before it is due."""
        try:
            provider = self._pending[0][0].meter_provider or get_meter_provider()
        except IndexError:
            return
        if type(provider).__name__ not in _gate._PLACEHOLDERS and self._found(provider) is None:
            self._make(provider)

    # Recording

    def drain(self) -> None:
        """Record all that was told by now. Called by readers, and so with their locks held: nothing is made here."""
        self._record_all(make=False)

    def flush(self) -> bool:
        """Record all that was told by now, instruments and all; False where somebody else takes too long for that."""
        self._record_all()
        return self._record_all()  # what has waited for its instruments

    def _record_all(self, *, make: bool = True) -> bool:
        """Record all that was told by now, and let other threads go first again and again."""
        if self._dropped:
            self._say_dropped()
        left, aside = len(self._pending), _shut()
        while left > 0 and self._pending:
            if not self._record(1, make=make):
                return False
            left -= 1
            aside.acquire(timeout=1e-6)  # whoever waits for the interpreter has it now
        return self._record(0, settle=True, make=make)  # and what another thread is recording is recorded then

    def _record(self, most: int, *, settle: bool = False, make: bool = True) -> bool:
        """Record so many, the oldest first; False where somebody else has been recording for too long."""
        this = _thread.get_ident()
        # A processor that has everything flushed as soon as a span ends does so in the middle of this.
        if self._recorder == this or not self._recording.acquire(timeout=_AT_THE_END_S):
            return False
        self._recorder = this
        try:
            missing = self._record_pending(most)
            for _, instruments in self._instruments if settle else ():
                if instruments is not None:
                    instruments.settle()
        except Exception as error:  # noqa: BLE001 - an application's own reader or view may raise anything
            self._went_wrong("recording", error)
            missing = None
        finally:
            self._recorder = None
            self._recording.release()
        if make and missing is not None:
            self._make(missing)
        return True

    def _record_pending(self, most: int) -> Any:
        """The provider whose instruments are missing; None where none's are."""
        missing = None
        for _ in range(most):
            try:
                settings, told = self._pending.popleft()
            except IndexError:
                break
            if not isinstance(told, EndedCall | EndedAction):
                made = self._spans_made(told)
                if made is None:
                    continue
                told = made
            provider = settings.meter_provider or get_meter_provider()
            if type(provider).__name__ in _gate._PLACEHOLDERS:
                continue
            found = self._found(provider)
            if found is None:
                missing = provider
                self._pending.append((settings, told))
            elif found[1] is not None:
                try:
                    found[1].record(self._measures.of(told, settings.conventions), told.context)
                except Exception as error:  # noqa: BLE001 - one call's record is no reason to lose the next one's
                    self._went_wrong("recording", error)
                if self._dropped:
                    self._say_dropped()
                    dropped, self._dropped = self._dropped, 0
                    found[1].record([(metrics.DROPPED, dropped, _NO_LABELS)], None)
        return missing

    def _spans_made(self, unmade: Unmade) -> EndedCall | None:
        try:
            return unmade.made()
        except Exception as error:  # noqa: BLE001 - an application's own sampler or processor may raise anything
            self._went_wrong("making spans", error)
            return None

    def _found(self, provider: Any) -> tuple[Any, Instruments | None] | None:
        for found in self._instruments:
            if found[0] is provider:
                return found
        return None

    def _make(self, provider: Any) -> None:
        """Make a provider's instruments, unless somebody else has; where that fails, nothing is recorded for it."""
        if not self._making.acquire(timeout=_AT_THE_END_S):
            return
        try:
            found, made = self._found(provider), None
            try:
                if found is None:
                    made = Instruments(provider, self.drain, self._labels)
                elif found[1] is not None:
                    found[1].complete()
            except Exception as error:  # noqa: BLE001 - an application's own provider may raise anything
                self._went_wrong("making instruments", error)
            if found is None:
                self._instruments = [*self._instruments[1 - _MOST_PROVIDERS :], (provider, made)]
        finally:
            self._making.release()

    def _say_dropped(self) -> None:
        if "dropped" not in self._logged:
            self._logged.add("dropped")
            log.warning("telemetry: more than %d calls waited to be told of; the oldest are left out", MOST_PENDING)

    def _went_wrong(self, doing: str, error: BaseException) -> None:
        if doing not in self._logged:
            self._logged.add(doing)
            # The class alone: a message may quote anything.
            log.warning("metrics: %s raised %s; calls are not affected (logged once)", doing, type(error).__name__)


def _shut() -> _thread.LockType:
    """A lock that is taken: whoever waits for it is woken by its release."""
    lock = _thread.allocate_lock()
    lock.acquire()
    return lock


def _open(lock: _thread.LockType) -> None:
    try:
        lock.release()
    except RuntimeError:  # somebody else has woken it
        pass


_telling = _Telling()

tell = _telling.tell
get_ready = _telling.get_ready
flush = _telling.flush

in_child(_telling.start_over)

# Before the SDK's own, which exports for the last time: what is registered later is called earlier, and there was
# somebody to tell before this was imported.
atexit.register(flush)
