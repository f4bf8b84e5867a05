"""Which schemas have no value that comes to an end, once every property is required."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .positions import reachable
from .references import resolve


class Endings:
    """The schemas of one document, which is well formed. What no reference leads back to has an end."""

    __slots__ = ("_endless", "_known")

    def __init__(self, root: Mapping[str, Any]) -> None:
        # What is met last leads to least: it is looked at first.
        references = list(dict.fromkeys(one["$ref"] for one in reachable(root, root) if "$ref" in one))[::-1]
        # Nothing counts as having an end before it is seen to have one: that takes as many rounds as references, at
        # most, and no look along each of the ways through them, of which there can be any number.
        self._endless = set(references)
        before = -1
        while len(self._endless) != before:
            before = len(self._endless)
            self._known: dict[int, tuple[Any, bool]] = {}
            for one in references:
                if one in self._endless and not self.is_endless(resolve(root, one)):
                    self._endless.discard(one)

    def is_endless(self, schema: Any) -> bool:
        """Whether every value of a schema would hold another of its kind."""
        if not isinstance(schema, Mapping) or "enum" in schema or "const" in schema:
            return False
        known = self._known.get(id(schema))
        if known is None:
            # With the schema itself, whose number another could have once it is gone.
            known = self._known[id(schema)] = schema, self._look(schema)
        return known[1]

    def _look(self, schema: Mapping[str, Any]) -> bool:
        if schema.get("$ref") in self._endless:
            return True
        for key in ("anyOf", "oneOf"):
            branches = schema.get(key)
            if isinstance(branches, list) and branches and all(map(self.is_endless, branches)):
                return True
        parts = schema.get("allOf")
        if isinstance(parts, list) and any(map(self.is_endless, parts)):
            return True
        kind = schema.get("type")
        if isinstance(kind, list) and len(kind) > 1:
            return False
        if schema.get("minItems") and self.is_endless(schema.get("items")):
            return True
        properties = schema.get("properties")
        return isinstance(properties, Mapping) and any(map(self.is_endless, properties.values()))
