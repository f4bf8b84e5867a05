"""Read a provider's own times from the headers and fields of responses that its facts name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ..records.usage import ProviderTimes
from .fields import field as field_in

_SECONDS = {"s": 1.0, "ms": 1e-3}
_DURATION = re.compile(r"dur=([0-9]+(?:\.[0-9]+)?)")

# A larger number is not a duration in this unit: it is a timestamp, or in another unit.
_MOST_SECONDS = 1e6


class _Place(NamedTuple):
    path: tuple[str, ...]
    field: str
    """The field of `ProviderTimes`."""
    unit_s: float


class TimesReader:
    """Reads the times of one provider."""

    __slots__ = ("_fields", "_headers")

    def __init__(self, headers: tuple[_Place, ...], fields: tuple[_Place, ...]) -> None:
        self._headers = headers
        self._fields = fields

    def in_answer(self, answer: Any) -> dict[str, float] | None:
        """Return the times, in seconds, in a whole answer or an event of a stream; None if there are none."""
        found: dict[str, float] = {}
        for place in self._fields:
            value = answer
            for name in place.path:
                value = None if value is None else field_in(value, name)
            if value is not None:
                _note(found, place.field, place.unit_s, value)
        return found or None

    def of(
        self, headers: Mapping[str, str], in_answer: dict[str, float] | None, *, is_stream: bool
    ) -> ProviderTimes | None:
        """Return the times of an answer; those of the body override those of the headers. None if there are none."""
        found: dict[str, float] = {}
        for place in self._headers:
            said = headers.get(place.path[0])
            if said is None:
                continue
            try:
                value = float(said)
            except ValueError:
                duration = _DURATION.search(said)
                if duration is None:
                    continue
                value = float(duration[1])
            field = "head_s" if is_stream and place.field == "total_s" else place.field
            _note(found, field, place.unit_s, value)
        found |= in_answer or {}
        return ProviderTimes(**found) if found else None


def _note(found: dict[str, float], field: str, unit_s: float, value: Any) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST_SECONDS / unit_s:
        found[field] = value * unit_s


@lru_cache(maxsize=64)
def times_reader(timing: Any) -> TimesReader | None:
    """Return the reader for the `timing` of a provider's facts; None if they name no header or field."""
    phases = timing.phases.value if timing.phases is not None else None
    places: dict[str, list[_Place]] = {"headers": [], "fields": []}
    for kind, found in places.items():
        fact = getattr(timing, kind)
        units = (fact.value if fact is not None else None) or {}
        for name, unit in units.items():
            phase = phases.get(name) if phases is not None else None
            if phase is not None:
                path = (name,) if kind == "headers" else tuple(name.split("."))
                found.append(_Place(path, f"{phase}_s", _SECONDS[unit]))
    if not any(places.values()):
        return None
    return TimesReader(tuple(places["headers"]), tuple(places["fields"]))
