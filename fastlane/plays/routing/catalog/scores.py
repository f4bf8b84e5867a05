"""How often models have passed your evaluations, and whether that clears a bar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastlane.errors import ConfigurationError

if TYPE_CHECKING:
    from .models import CatalogModel

# From so many evaluations on they count alone, and the index no longer.
_ENOUGH = 20


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
        return f"its quality is not known, and {min_quality:g} is required"
    return f"quality {model.quality:g} is below {min_quality:g}" if model.quality < min_quality else None
