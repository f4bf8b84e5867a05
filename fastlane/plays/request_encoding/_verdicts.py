"""What was found out about the bodies that providers take: in memory for all clients, and in a file if wished."""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fastlane._clock import now_ns, wall_ns
from fastlane.knowledge.table import Table

if TYPE_CHECKING:
    from fastlane.records.attempts import Form

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
        self._known: Table[Key, Verdict] = Table("verdicts on bodies", max_entries=MOST_KEYS)
        self._failures: Table[Key, float] = Table("failures of encoded bodies", max_entries=MOST_KEYS)
        self._asking: Table[Key, tuple[int, object]] = Table(
            "probes of bodies", max_entries=MOST_KEYS, in_child="empty"
        )
        self._read: Table[str, bool] = Table("files of verdicts", max_entries=MOST_KEYS)

    def get(self, key: Key, file: str | None = None) -> Verdict | None:
        """What is known and not too old; None where that is nothing."""
        if file is not None and self._read.get(file) is None:
            for found, kept in _read(file).items():
                self._known.update(found, partial(_newer, kept))
            self._read.put(file, True)
        verdict = self._known.get(key)
        return verdict if verdict is not None and _is_fresh(verdict) else None

    def put(self, key: Key, outcome: str, reason: str, file: str | None = None) -> Verdict:
        """Remember what was found out just now."""
        verdict = Verdict(outcome, reason, wall_ns() / 1e9)
        self._known.put(key, verdict)
        self._failures.pop(key)
        if file is not None:
            _write_file(file, dict(self._known.items()))
        return verdict

    def answered(self, key: Key) -> None:
        """An encoded body was answered: failures before it had other reasons."""
        if self._failures.get(key) is not None:
            self._failures.pop(key)

    def failed(self, key: Key, reason: str, *, weight: float, file: str | None = None) -> None:
        """An encoded body met an error that may or may not be due to its form; several in a row are."""
        if self._failures.update(key, lambda failures: (failures or 0.0) + weight) >= _MOST_FAILURES:
            self.put(key, "broken", reason, file)

    def begin_asking(self, key: Key) -> bool:
        """Whether the caller is the one to find out now: others go on without knowing."""
        mine = now_ns(), object()

        def change(other: tuple[int, object] | None) -> tuple[int, object]:
            return other if other is not None and mine[0] - other[0] < _MOST_ASKING_NS else mine

        return self._asking.update(key, change) is mine

    def end_asking(self, key: Key) -> None:
        """The caller has found out, or given up."""
        self._asking.pop(key)


def _newer(verdict: Verdict, mine: Verdict | None) -> Verdict:
    return verdict if mine is None or mine.checked_wall_s < verdict.checked_wall_s else mine


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
