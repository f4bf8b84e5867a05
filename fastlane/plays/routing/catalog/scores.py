"""How often models have passed the application's own evaluations, and whether that clears a bar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastlane.errors import ConfigurationError
from fastlane.knowledge.table import Table

if TYPE_CHECKING:
    from .models import CatalogModel

# From so many evaluations on they count alone, and the index no longer.
_ENOUGH = 20
# A provider changes a model under its name: old evaluations fade.
_MAX_OF_ONE = 1_000
_MAX_SCORES = 10_000


@dataclass(frozen=True, slots=True)
class Score:
    """How many of a model's evaluations were passed. Raises ConfigurationError for impossible numbers."""

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


def clears(
    model: CatalogModel, *, min_quality: float | None, min_pass_rate: float | None, measured: Score
) -> str | None:
    """Return why a model does not clear a bar, in a few words; None if it does.

    `min_pass_rate` is the least share of passed evaluations of the task, 0 to 1; `measured` are those of this model.
    From 20 evaluations on their share decides, and until then the index: `min_quality`, in the index's units. Without a
    pass rate the index decides alone. A model without an index clears no bar of it. Without any bar every model clears.
    """
    passed, count = measured.passed, measured.count
    if min_pass_rate is not None and count >= _ENOUGH:
        return None if passed >= min_pass_rate * count else f"passed {passed} of {count}, below {min_pass_rate:g}"
    if min_quality is None:
        return None
    if model.quality is None:
        return f"its quality is not known, and {min_quality:g} is asked for"
    return f"quality {model.quality:g} is below {min_quality:g}" if model.quality < min_quality else None


class Scoreboard:
    """The evaluations of a process, by task and model. Thread-safe.

    Of one model at one task about the last thousand count. Of more than 10,000 pairs of both, those that were scored
    last are kept.
    """

    def __init__(self) -> None:
        self._scores: Table[tuple[str, str], Score] = Table("scores", max_entries=_MAX_SCORES)
        self.version = 0
        """Changes whenever a score does."""

    def score(self, task: str, model: str, passed: bool) -> None:
        """Count an evaluation. Raises ConfigurationError."""
        _check(task, model, passed)

        def change(before: Score | None) -> Score:
            one = before or _NOTHING
            if one.count >= _MAX_OF_ONE:
                one = Score(one.passed // 2, one.count // 2)
            return Score(one.passed + bool(passed), one.count + 1)

        self._scores.update((task, model), change)
        self.version += 1

    def of(self, task: str, model: str) -> Score:
        """Return the evaluations of a model at a task."""
        return self._scores.get((task, model)) or _NOTHING

    def clear(self) -> None:
        """Forget all evaluations."""
        self._scores.clear()
        self.version += 1


_NOTHING = Score()

scoreboard = Scoreboard()
"""That of this process."""


def score(task: str, model: str, passed: bool) -> None:
    """Count whether an answer passed the application's own evaluation.

    `model` is the catalog's name of the model that gave it: `record.routing.model`. Calls that are routed with a pass
    rate for this task take it into account from now on; see docs/catalog.md. Raises ConfigurationError for an argument
    of another type.
    """
    scoreboard.score(task, model, passed)


def _check(task: object, model: object, passed: object) -> None:
    # A misplaced argument may be an answer: the error names its type, never its text.
    for name, value in (("task", task), ("model", model)):
        if not isinstance(value, str) or not value:
            got = "an empty text" if value == "" else f"a {type(value).__name__}"
            raise ConfigurationError(f"{name} must be a text that is not empty, got {got}")
    if isinstance(passed, str) or passed not in (True, False):
        raise ConfigurationError(f"passed must be True or False, got a {type(passed).__name__}")
