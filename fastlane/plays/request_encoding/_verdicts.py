"""What was found out about the bodies that providers take: in memory for all clients, and in a file if wished."""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fastlane._clock import now_ns, wall_ns

if TYPE_CHECKING:
    from fastlane.engine.call import Form

log = logging.getLogger("fastlane")

# Providers change rarely, and what one takes can be found out again at the price of one small request; one that did not
# answer may have had a bad minute.
_DAY_S = 86_400.0
_LIFETIME_S = {"accepted": 7 * _DAY_S, "refused": _DAY_S, "undecided": _DAY_S, "broken": 600.0}

# One from the future by more than this was written by a clock that was wrong.
_CLOCKS_DIFFER_S = 60.0

# In a row, without an encoded body that was answered in between, before no more are sent for a while.
_MOST_FAILURES = 2

# Whoever asks and has not come to an end after this long never will: its event loop was stopped.
_MOST_ASKING_NS = 60 * 10**9

_FILE_VERSION = 1
_MOST_FILE_BYTES = 4 << 20

MOST_KEYS = 2_000
"""What is known of more than so many is forgotten, beginning with the oldest."""

_V = TypeVar("_V")


class Key(NamedTuple):
    """What a verdict is about."""

    origin: str
    endpoint: str
    """With what stands before it in the path: see `place_of()`."""
    form: Form


class Verdict(NamedTuple):
    """What is known of one form of body at one endpoint."""

    outcome: str
    """"accepted", "refused", "undecided" (not to be told without spending tokens) or "broken" (errors, no answer)."""
    reason: str
    checked_wall_s: float
    """Seconds since the epoch."""

    @property
    def accepts(self) -> bool:
        """Whether such bodies may be sent."""
        return self.outcome == "accepted"


class Verdicts:
    """The verdicts of a process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Key, Verdict] = {}
        self._failures: dict[Key, float] = {}
        self._asking: dict[Key, int] = {}
        self._read: set[str] = set()

    def get(self, key: Key, file: str | None = None) -> Verdict | None:
        """What is known and not too old; None where that is nothing."""
        if file is not None and file not in self._read:
            self._read_file(file)
        verdict = self._known.get(key)
        return verdict if verdict is not None and _is_fresh(verdict) else None

    def put(self, key: Key, outcome: str, reason: str, file: str | None = None) -> Verdict:
        """Remember what was found out just now."""
        verdict = Verdict(outcome, reason, wall_ns() / 1e9)
        with self._lock:
            self._known.pop(key, None)
            self._known[key] = verdict
            self._failures.pop(key, None)
            bounded(self._known, MOST_KEYS)
            known = dict(self._known)
        if file is not None:
            _write_file(file, known)
        return verdict

    def answered(self, key: Key) -> None:
        """An encoded body was answered: failures before it had other reasons."""
        if key in self._failures:
            with self._lock:
                self._failures.pop(key, None)

    def failed(self, key: Key, reason: str, *, weight: float, file: str | None = None) -> None:
        """An encoded body met an error that may or may not be due to its form; several in a row are."""
        with self._lock:
            failures = self._failures.get(key, 0) + weight
            self._failures[key] = failures
            bounded(self._failures, MOST_KEYS)
        if failures >= _MOST_FAILURES:
            self.put(key, "broken", reason, file)

    def begin_asking(self, key: Key) -> bool:
        """Whether the caller is the one to find out now: others go on without knowing."""
        with self._lock:
            began_ns, at_ns = self._asking.get(key), now_ns()
            if began_ns is not None and at_ns - began_ns < _MOST_ASKING_NS:
                return False
            self._asking[key] = at_ns
            return True

    def end_asking(self, key: Key) -> None:
        """The caller has found out, or given up."""
        with self._lock:
            self._asking.pop(key, None)

    def clear(self) -> None:
        """Forget everything, what was read from files included."""
        with self._lock:
            self._known.clear()
            self._failures.clear()
            self._asking.clear()
            self._read.clear()

    def forked(self) -> None:
        """This is a copy in another process: whoever held the lock or was asking is not here."""
        self._lock = threading.Lock()
        self._asking.clear()

    def _read_file(self, file: str) -> None:
        found = _read(file)
        with self._lock:
            self._read.add(file)
            for key, verdict in found.items():
                mine = self._known.get(key)
                if mine is None or mine.checked_wall_s < verdict.checked_wall_s:
                    self._known[key] = verdict
            bounded(self._known, MOST_KEYS)


def bounded(known: dict[Any, _V], most: int) -> None:
    """Forget what was put in first until there are no more than `most`."""
    while len(known) > most:
        with suppress(StopIteration, KeyError, RuntimeError):  # another thread forgets too
            del known[next(iter(known))]


def _is_fresh(verdict: Verdict) -> bool:
    age_s = wall_ns() / 1e9 - verdict.checked_wall_s
    return age_s >= -_CLOCKS_DIFFER_S and age_s < _LIFETIME_S.get(verdict.outcome, 0.0)


def _read(file: str) -> dict[Key, Verdict]:
    """What the file says and is not too old."""
    found: dict[Key, Verdict] = {}
    try:
        about = os.stat(file)  # noqa: PTH116 - one that cannot be a path is told like one that cannot be read
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MOST_FILE_BYTES:
            raise ValueError
        kept: Any = json.loads(Path(file).read_text(encoding="utf-8"))
        if kept.get("version") != _FILE_VERSION:
            return found
        for each in kept["verdicts"]:
            key = Key(str(each["origin"]), str(each["endpoint"]), each["form"])
            verdict = Verdict(str(each["outcome"]), str(each["reason"]), float(each["checked_wall_s"]))
            if _is_fresh(verdict):
                found[key] = verdict
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        log.warning("The file of Encoding(remember=...) cannot be read (%s) and is written anew", type(error).__name__)
    return found


def _write_file(file: str, known: dict[Key, Verdict]) -> None:
    """Write what is known, and what another process has written there and is newer."""
    for key, verdict in _read(file).items():
        mine = known.get(key)
        if mine is None or mine.checked_wall_s < verdict.checked_wall_s:
            known[key] = verdict
    verdicts = [{**key._asdict(), **verdict._asdict()} for key, verdict in sorted(known.items()) if _is_fresh(verdict)]
    try:
        path = Path(os.path.realpath(file))  # what a link leads to, and not the link
        if path.exists() and not path.is_file():
            raise FileExistsError  # a device or a pipe is not to be replaced
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                json.dump({"version": _FILE_VERSION, "verdicts": verdicts}, out, indent=1)
            with suppress(OSError):
                shutil.copymode(path, name)
            Path(name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
    except (OSError, ValueError) as error:
        log.warning("The file of Encoding(remember=...) cannot be written (%s)", type(error).__name__)


verdicts = Verdicts()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=verdicts.forked)
