"""Merge the deltas of a stream into JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from .fields import fields_of

# Texts that a provider sends whole each time. All other texts of a delta are pieces.
_WHOLE = frozenset(("channel", "format", "id", "index", "model", "name", "object", "phase", "role", "type"))


class Text:
    """A text that grows; its pieces are joined when it is read."""

    __slots__ = ("pieces",)

    def __init__(self, *pieces: str) -> None:
        self.pieces = [*pieces]

    def __str__(self) -> str:
        return "".join(self.pieces)


def text_of(value: Any) -> str:
    """Return a text, or "" for anything else."""
    return str(value) if isinstance(value, str | Text) else ""


class ByIndex(dict[int, Any]):
    """A JSON list whose entries arrive by their index, with gaps and in any order."""


def plain(value: Any) -> Any:
    """Return a copy of a value as plain JSON; growing texts are joined."""
    if isinstance(value, str):
        return value
    if isinstance(value, Text):
        return str(value)
    if isinstance(value, ByIndex):
        return [plain(value[index]) for index in sorted(value)]
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, BaseModel):
        return value.to_dict(warnings=False) if hasattr(value, "to_dict") else value.model_dump(warnings=False)
    return value


def add_text(into: dict[str, Any], name: str, piece: str) -> None:
    """Append a piece to a text field."""
    held = into.get(name)
    if isinstance(held, Text):
        held.pieces.append(piece)
    else:
        into[name] = Text(held, piece) if isinstance(held, str) and held else piece


def merge(into: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add a delta: texts and lists grow, objects are merged, anything else is replaced. A null changes nothing."""
    for name, value in delta.items():
        merge_field(into, name, value)


def merge_field(into: dict[str, Any], name: str, value: Any) -> None:
    """Add one field of a delta."""
    held = into.get(name)
    if held is None:
        if isinstance(value, list | tuple):
            # One event can bring several pieces of one entry.
            into[name] = []
            _merge_list(into[name], value)
        else:
            into[name] = plain(value)
    elif value is None:
        return
    elif isinstance(value, str) and isinstance(held, str | Text) and name not in _WHOLE:
        add_text(into, name, value)
    elif isinstance(held, dict) and (inner := fields_of(value)) is not None:
        merge(held, inner)
    elif isinstance(held, list) and isinstance(value, list | tuple):
        _merge_list(held, value)
    else:
        into[name] = plain(value)


def _merge_list(into: list[Any], delta: Iterable[Any]) -> None:
    """Merge entries that have an index into the entry of that index; append all others."""
    for entry in delta:
        fields = fields_of(entry)
        index = None if fields is None else fields.get("index")
        held = None if index is None else next((one for one in into if _index_of(one) == index), None)
        if held is None:
            into.append(plain(entry))
        else:
            merge(held, fields or {})


def _index_of(entry: Any) -> Any:
    return entry.get("index") if isinstance(entry, dict) else None


def replace(into: dict[str, Any], name: str, value: Any, *, extend_lists: bool) -> None:
    """Keep the last value of a field that is sent whole with every event, or once.

    Lists either grow (the ids of a choice's tokens) or come whole each time (the sources of a search).
    """
    held = into.get(name)
    if held is None:
        into[name] = plain(value)
    elif value is None or (held == value and not extend_lists):
        return
    elif isinstance(held, dict) and (inner := fields_of(value)) is not None:
        held.update(plain(inner))
    elif extend_lists and isinstance(held, list) and isinstance(value, list | tuple):
        held.extend(plain(value))
    else:
        into[name] = plain(value)
