"""What the chunks of one answer say of the answer as a whole: its id, model, usage, and what else a provider tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._cut import Cut
from ._merge import own, replace_fields

# `obfuscation` is padding against those who look at the sizes of packets: it is a part of streams alone.
_STREAMED = frozenset(("choices", "error", "event_id", "obfuscation"))
_SAID_ONCE = ("id", "created", "model", "object")
_KNOWN = _STREAMED | frozenset(_SAID_ONCE)


def error_of(value: Any) -> Mapping[str, Any] | None:
    """Return what a provider says of a failure; None where it says nothing."""
    if isinstance(value, Mapping):
        return own(value) if value else None
    return {"message": str(value)} if value else None


class Head:
    """The fields of chat and legacy completions that stand beside `choices`."""

    __slots__ = ("_fields", "_object", "_settled")

    def __init__(self, whole_object: str) -> None:
        self._object = whole_object
        self._fields: dict[str, Any] = {}
        self._settled = False

    def take(self, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Add one chunk; return the error that it carries, if it does."""
        fields = self._fields
        if not self._settled:
            # A first event may be about the prompt alone, with an empty id and model.
            for name in _SAID_ONCE:
                if event.get(name) is not None and not fields.get(name):
                    fields[name] = event[name]
            self._settled = all(map(fields.get, _SAID_ONCE))
        for name, value in event.items():
            if value is not None and name not in _KNOWN and fields.get(name) != value:
                replace_fields(fields, {name: value}, _KNOWN, lists_go_on=False)
            elif value is None:
                fields.setdefault(name, None)
        return error_of(event["error"]) if event.get("error") else None

    def body(self, choices: list[dict[str, Any]], cut: Cut | None) -> dict[str, Any]:
        """Return the whole answer with these choices."""
        found = {**own(self._fields), "object": self._object, "choices": choices}
        for name in _STREAMED - {"choices"}:
            found.pop(name, None)
        # Streams show a null until there is one; an answer that is not streamed either has one or lacks the field.
        usage = _lifted(found, found.pop("usage", None))
        if usage is None and cut is not None and cut.usage is not None:
            usage = own(cut.usage)
        if usage is not None:
            found["usage"] = usage
        return found


def _lifted(fields: Mapping[str, Any], usage: Any) -> Any:
    """Return the usage; in streams it may stand in a field of the provider's own, alone or again."""
    for value in fields.values():
        if isinstance(value, dict) and isinstance(value.get("usage"), dict) and usage in (None, value["usage"]):
            usage = value.pop("usage")
    return usage
