"""Whether a valid answer can be longer than `bound()` says: none may be, and how far most stay below it.

Schemas of draft 7 are drawn at random, three levels deep, most of them with a longest value; and values that use their
limits up (strings of characters that take twelve when they are escaped, doubles of 17 digits, every property).
jsonschema says which values are valid. Each value is written by `json.dumps` compactly, with its defaults, and with an
indent of four, its non-ASCII characters escaped and not, and compared with `tokens`: a bound without a convention for
numbers. Tokens count as exceeded where the text has more bytes of UTF-8 than there are tokens, as no tokenizer is at
hand; with one (`TIKTOKEN_CACHE_DIR`) the model's own tokens are counted.

Inside: `bound()` and the length of its texts. `cached_bound_us`: the CPU time of `bound()` for a schema of 12
properties that was bounded before.
Outside: making the values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import Any

import jsonschema  # type: ignore[import-untyped]
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from referencing.exceptions import Unresolvable

from benchmarks._drawn_schemas import drawn_schema
from benchmarks._report import Figure, Report
from fastlane._clock import cpu_ns
from fastlane.knowledge.tokens import counter
from fastlane.schemas.bound import Bound, schema_bound

_MODEL = "gpt-4o"
_INSTANCES = 20_000
_QUICK_INSTANCES = 400
_PER_SCHEMA = 20
_PROPERTIES = 12
_CALLS = 2_000


@dataclass(slots=True)
class _Seen:
    """What the values came to."""

    instances: int = 0
    """With a bound to compare them with."""
    exceeding: int = 0
    closest: list[float] = field(default_factory=list)
    """For each schema, the share of the bound that the longest of its values used up."""

    def look(self, found: Bound, values: Iterable[Any]) -> None:
        counts = counter(_MODEL).text if counter(_MODEL).exact else _bytes
        longest = 0
        for value in values:
            if found.tokens is None:
                continue
            texts = list(_texts(value))
            self.instances += 1
            longest = max(longest, *map(len, texts))
            over = any(len(text) > found.tokens for text in texts)
            self.exceeding += over or any(counts(text) > found.tokens for text in texts)
        if longest and found.tokens:
            self.closest.append(longest / found.tokens)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _texts(value: Any) -> Iterator[str]:
    for ascii_alone in (True, False):
        yield json.dumps(value, ensure_ascii=ascii_alone, separators=(",", ":"))
        yield json.dumps(value, ensure_ascii=ascii_alone)
        yield json.dumps(value, ensure_ascii=ascii_alone, indent=4)


def _valid(schema: Any, values: Iterable[Any]) -> list[Any]:
    kind = jsonschema.validators.validator_for(schema)
    # With no other schemas than those of JSON schema itself, nothing is fetched.
    validator = kind(schema, format_checker=kind.FORMAT_CHECKER, registry=REGISTRY)
    try:
        return [value for value in values if validator.is_valid(value)]
    except (jsonschema.exceptions.JsonSchemaException, Unresolvable, re.error):
        return []


def _bound(schema: Any) -> Bound:
    return schema_bound(schema, assume=False)


def _usual(properties: int) -> dict[str, Any]:
    kinds = (
        {"type": "string", "maxLength": 80},
        {"type": "integer", "minimum": 0, "maximum": 100},
        {"enum": ["a", "b"]},
    )
    fields = {f"field_{number}": kinds[number % len(kinds)] for number in range(properties)}
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _cpu_us(schemas: Iterable[dict[str, Any]]) -> float:
    taken = []
    for schema in schemas:
        started = cpu_ns()
        schema_bound(schema)
        taken.append((cpu_ns() - started) / 1e3)
    return median(taken)


def measure(quick: bool) -> Report:
    """Draw schemas until there are enough values."""
    wanted = _QUICK_INSTANCES if quick else _INSTANCES
    seen = _Seen()
    schemas = bounded = 0
    while seen.instances < wanted:
        random = Random(schemas)
        drawn = drawn_schema(random)
        schemas += 1
        found = _bound(drawn.schema)
        if found.tokens is None:
            continue
        bounded += 1
        seen.look(found, _valid(drawn.schema, [drawn.longest(random) for _ in range(_PER_SCHEMA)]))
    figures: dict[str, Figure] = {
        "instances": seen.instances,
        "exceeding": seen.exceeding,
        "schemas": schemas,
        "bounded_schemas": bounded,
        "longest_seen_to_bound_ratio": median(seen.closest),
        "cached_bound_us": _cpu_us([_usual(_PROPERTIES)] * _CALLS),
    }
    return Report(
        figures=figures,
        reach={
            "exceeding": "== 0",
            "cached_bound_us": "<= 10",
        },
        conditions={"tokens": "the model's own" if counter(_MODEL).exact else "bytes, for want of its tokenizer"},
    )
