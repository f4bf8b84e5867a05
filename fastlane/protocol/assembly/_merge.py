"""Put the fields of a stream's events together that nobody here knows by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Texts that come whole each time that they come. All other texts of a delta are pieces.
_WHOLE = frozenset(("channel", "format", "id", "index", "model", "name", "object", "phase", "role", "type"))


def own(value: Any) -> Any:
    """Return a copy of a JSON value: what is put together is never a part of an event."""
    if isinstance(value, Mapping):
        return {name: own(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [own(inner) for inner in value]
    return value


def merge_delta(into: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add a delta: texts and lists go on, objects are merged, anything else is replaced. A null says nothing."""
    for name, value in delta.items():
        held = into.get(name)
        if held is None:
            into[name] = _begun(value)
        elif value is None:
            continue
        elif isinstance(held, str) and isinstance(value, str):
            into[name] = value if name in _WHOLE else held + value
        elif isinstance(held, dict) and isinstance(value, Mapping):
            merge_delta(held, value)
        elif isinstance(held, list) and isinstance(value, list | tuple):
            _merge_list(held, value)
        else:
            into[name] = own(value)


def _begun(value: Any) -> Any:
    if isinstance(value, list | tuple):
        # Several pieces of one entry may come in the first event already.
        entries: list[Any] = []
        _merge_list(entries, value)
        return entries
    return own(value)


def _merge_list(into: list[Any], delta: list[Any] | tuple[Any, ...]) -> None:
    """Entries with an index go to the entry of that index; others are new ones."""
    for entry in delta:
        index = entry.get("index") if isinstance(entry, Mapping) else None
        held = None if index is None else next((one for one in into if _index_of(one) == index), None)
        if held is None:
            into.append(own(entry))
        else:
            merge_delta(held, entry)


def _index_of(entry: Any) -> Any:
    return entry.get("index") if isinstance(entry, dict) else None


def replace_fields(
    into: dict[str, Any], fields: Mapping[str, Any], known: frozenset[str], *, lists_go_on: bool
) -> None:
    """Take over fields that say the same in every event, or say it once: the last that says something counts.

    Lists either go on (the ids of a choice's tokens) or come whole each time (the sources of a search).
    """
    for name, value in fields.items():
        if name in known:
            continue
        held = into.get(name)
        if held is None:
            into[name] = own(value)
        elif value is None:
            continue
        elif isinstance(held, dict) and isinstance(value, Mapping):
            held.update(own(value))
        elif lists_go_on and isinstance(held, list) and isinstance(value, list):
            held.extend(own(value))
        else:
            into[name] = own(value)


def as_position(value: Any, *, otherwise: int = 0) -> int:
    """Return an index out of an event; what is none counts as the only one there is."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise
