"""The sections of a made record, given by the names under which a record has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fastlane import plays
from fastlane.records import RecordSection

_KINDS: dict[str, type[RecordSection]] = {
    kind.name: kind for name in plays.__all__ if (kind := getattr(getattr(plays, name), "section", None)) is not None
}


def with_sections(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a CallRecord: `hedging=HedgingRecord(...)` is made a section as the play makes it."""
    found = [_section(name, given[name]) for name in _KINDS if given.get(name) is not None]
    rest = {name: value for name, value in given.items() if name not in _KINDS}
    return {"sections": tuple(found), **rest}


def _section(name: str, data: Any) -> RecordSection:
    return _KINDS[name](**{field.name: getattr(data, field.name) for field in fields(data)})
