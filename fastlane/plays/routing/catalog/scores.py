"""How often models have passed the application's own evaluations, and what that says of them."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, sqrt
from typing import TYPE_CHECKING

from fastlane._fork import new_lock
from fastlane.errors import ConfigurationError
from fastlane.knowledge.table import Table

if TYPE_CHECKING:
    from .models import CatalogModel

log = logging.getLogger("fastlane")

Listener = Callable[[str, str, bool], None]

CONFIDENCE = 0.95
# Evaluations from which on they count alone, and the index no longer: their interval is then still some 0.3 wide:
# fewer would decide little but by chance.
ENOUGH = 20
# A provider changes a model under its name: what was scored long ago may fade.
_MOST_OF_ONE = 1_000
_MOST_SCORES = 10_000


@dataclass(frozen=True, slots=True)
class Score:
    """How many of a model's evaluations were passed. Raises ConfigurationError where that cannot be."""

    passed: int = 0
    count: int = 0

    def __post_init__(self) -> None:
        if type(self.passed) is not int or type(self.count) is not int or not 0 <= self.passed <= self.count:
            raise ConfigurationError(
                f"expected two whole numbers, passed and count, of which passed is not the larger, "
                f"got {self.passed!r} and {self.count!r}"
            )

    def plus(self, other: Score) -> Score:
        """Return both together."""
        return Score(self.passed + other.passed, self.count + other.count)


def lower_bound(score: Score, confidence: float = CONFIDENCE) -> float:
    """Return the rate of passing, 0 to 1, that a model reaches at least, with `confidence`; 0 where nothing is known.

    The lower end of Wilson's score interval, one-sided: E. B. Wilson, "Probable Inference, the Law of Succession, and
    Statistical Inference", Journal of the American Statistical Association 22 (1927), pages 209-212.
    """
    return _wilson(score, confidence, -1.0)


def upper_bound(score: Score, confidence: float = CONFIDENCE) -> float:
    """Return the rate of passing, 0 to 1, that a model reaches at most; see `lower_bound`. 1 where nothing is known."""
    return _wilson(score, confidence, 1.0)


def clears(
    model: CatalogModel, *, min_quality: float | None, min_pass_rate: float | None, measured: Score
) -> str | None:
    """Return why a model does not clear a bar, in a few words; None where it does.

    `min_pass_rate` is the least share of passed evaluations of the task, 0 to 1; `measured` are those of this model. It
    clears once the lower bound of its rate is not below that, and fails once the upper bound is. In between it fails as
    soon as there are enough of them (20, or as many as a model without a failure needs), and until then its index
    decides: `min_quality`, in the index's units. Without a pass rate the index decides alone. A model without an index
    clears no bar of it, and where no bar is set, every model clears.
    """
    if min_pass_rate is not None and measured.count:
        least = lower_bound(measured)
        if least >= min_pass_rate:
            return None
        most = upper_bound(measured)
        passed = f"passed {measured.passed} of {measured.count}"
        if most < min_pass_rate:
            return f"{passed} (at most {most:.2f}) is below {min_pass_rate:g}"
        if measured.count >= _enough(min_pass_rate):
            return f"{passed} (at least {least:.2f}) is below {min_pass_rate:g}"
    if min_quality is None:
        return None
    if model.quality is None:
        return f"its quality is not known, and {min_quality:g} is asked for"
    return f"quality {model.quality:g} is below {min_quality:g}" if model.quality < min_quality else None


class Scoreboard:
    """The evaluations of a process, by task and model. Threads may share it.

    Of one model at one task about the last thousand count; of more than 10,000 pairs of both, those that were scored
    last are kept.
    """

    def __init__(self) -> None:
        self._scores: Table[tuple[str, str], Score] = Table("scores", max_entries=_MOST_SCORES)
        self._listeners: list[Callable[[], Listener | None]] = []
        self._lock = new_lock()  # of the listeners
        self.version = 0
        """Changes whenever a score does."""

    def score(self, task: str, model: str, passed: bool) -> None:
        """Count an evaluation, and tell those who subscribed. Raises ConfigurationError."""
        self.receive(task, model, passed)
        with self._lock:
            listeners = list(self._listeners)
        for reference in listeners:
            listener = reference()
            if listener is None:
                continue
            try:
                listener(task, model, bool(passed))
            except Exception as error:  # noqa: BLE001 - an evaluation is not to fail because of one who listens
                log.warning("a listener of fastlane's scores raised %s", type(error).__name__)

    def receive(self, task: str, model: str, passed: bool) -> None:
        """Count an evaluation of another process, of which nobody is told. Raises ConfigurationError."""
        _check(task, model, passed)

        def change(before: Score | None) -> Score:
            one = before or _NOTHING
            if one.count >= _MOST_OF_ONE:
                one = Score(one.passed // 2, one.count // 2)
            return Score(one.passed + bool(passed), one.count + 1)

        self._scores.update((task, model), change)
        self.version += 1

    def of(self, task: str, model: str) -> Score:
        """Return what was counted of a model at a task."""
        return self._scores.get((task, model)) or _NOTHING

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Have `listener(task, model, passed)` called for each evaluation that is scored in this process.

        A method does not keep its object alive, and is not called once that is gone. Returns what ends it.
        """
        reference: Callable[[], Listener | None]
        reference = weakref.WeakMethod(listener) if hasattr(listener, "__self__") else lambda: listener
        with self._lock:
            self._listeners = [one for one in self._listeners if one() is not None]
            self._listeners.append(reference)

        def unsubscribe() -> None:
            with self._lock:
                self._listeners = [one for one in self._listeners if one is not reference]

        return unsubscribe

    def clear(self) -> None:
        """Forget all evaluations."""
        self._scores.clear()
        self.version += 1


_NOTHING = Score()

scoreboard = Scoreboard()
"""That of this process."""


def score(task: str, model: str, passed: bool) -> None:
    """Say whether an answer passed the application's own evaluation.

    `model` is the catalog's name of the model that gave it: `record.routing.model`. Calls that are routed with a pass
    rate for this task take it into account from now on; see docs/catalog.md. Raises ConfigurationError where an
    argument is of another type.
    """
    scoreboard.score(task, model, passed)


def _check(task: object, model: object, passed: object) -> None:
    # What stands in the wrong place may be an answer: its type is named, never its text.
    for name, value in (("task", task), ("model", model)):
        if not isinstance(value, str) or not value:
            got = "an empty text" if value == "" else f"a {type(value).__name__}"
            raise ConfigurationError(f"{name} must be a text that is not empty, got {got}")
    if isinstance(passed, str) or passed not in (True, False):
        raise ConfigurationError(f"passed must be True or False, got a {type(passed).__name__}")


def _enough(min_pass_rate: float) -> float:
    if min_pass_rate >= 1:
        return float("inf")
    z = _deviations(CONFIDENCE)
    # With n passed of n the lower bound is n / (n + z²).
    return max(ENOUGH, ceil(z * z * min_pass_rate / (1 - min_pass_rate)))


def _wilson(score: Score, confidence: float, sign: float) -> float:
    passed, count = score.passed, score.count
    if not count:
        return 0.0 if sign < 0 else 1.0
    if passed == (0 if sign < 0 else count):
        return 0.0 if sign < 0 else 1.0  # exactly, whatever rounding makes of the formula
    z = _deviations(confidence)
    share = passed / count
    middle = share + z * z / (2 * count)
    spread = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return min(1.0, max(0.0, (middle + sign * spread) / (1 + z * z / count)))


@lru_cache
def _deviations(confidence: float) -> float:
    """Standard deviations within which a normal value stays, on one side."""
    from statistics import NormalDist

    if not 0.5 <= confidence < 1:
        raise ConfigurationError(f"confidence must be at least 0.5 and less than 1, got {confidence!r}")
    return NormalDist().inv_cdf(confidence)
