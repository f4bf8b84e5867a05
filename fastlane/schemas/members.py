"""How many different values a JSON schema allows, where those can be counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from .drafts import Dialect, number_of, types_of

# Schemas that are looked at: more than anybody writes for a set of values.
_MOST_STEPS = 500
_MOST_DEPTH = 20


def members_of(schema: Any, dialect: Dialect, target: Callable[[Any], Any]) -> int | None:
    """Return how many values a schema allows at most; None where there is no limit, or where it is not found."""
    steps = 0

    def count(schema: Any, depth: int) -> int | None:
        nonlocal steps
        steps += 1
        if schema is False:
            return 0
        if not isinstance(schema, Mapping) or depth > _MOST_DEPTH or steps > _MOST_STEPS:
            return None
        if "$ref" in schema and dialect.reference_alone:
            return count(target(schema["$ref"]), depth + 1)
        if depth and isinstance(schema.get("$schema"), str):
            return None
        found = [_of_types(schema, dialect)]
        if isinstance(values := schema.get("enum"), list | tuple):
            found.append(len(values))
        if dialect.knows("const") and "const" in schema:
            found.append(1)
        if "$ref" in schema:
            found.append(count(target(schema["$ref"]), depth + 1))
        for name in ("anyOf", "oneOf"):
            if isinstance(branches := dialect.get(schema, name), list | tuple):
                counts = [count(one, depth + 1) for one in branches]
                found.append(None if None in counts else sum(one for one in counts if one is not None))
        if isinstance(parts := dialect.get(schema, "allOf"), list | tuple):
            found += [count(one, depth + 1) for one in parts]
        fewest = min((one for one in found if one is not None), default=None)
        return fewest if fewest is None or schema.get("nullable") is not True else fewest + 1

    return count(schema, 0)


def _of_types(schema: Mapping[Any, Any], dialect: Dialect) -> int | None:
    """What `type` alone leaves: two booleans, one null, and the integers of a range."""
    types, integer = types_of(schema)
    total = 0
    for kind in types:
        if kind == "number" and integer:
            low, high = (number_of(dialect.get(schema, name)) for name in ("minimum", "maximum"))
            if low is None or high is None:
                return None
            total += max(0, math.floor(high) - math.ceil(low) + 1)
        elif kind in {"null", "boolean"}:
            total += 1 if kind == "null" else 2
        else:
            return None
    return total
