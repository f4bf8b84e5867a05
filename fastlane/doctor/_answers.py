"""What answers say beside their text: limits and times in their heads, token counts and times in their fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._findings import MeasuredFact, ProviderFinding

if TYPE_CHECKING:
    from ..providers import ProviderFacts

# Names of headers: what is written down of a provider comes first.
_LIMIT_HEADER = re.compile(r"rate-?limit|^retry-after")
_TIME_HEADER = re.compile(
    r"(?:^|-)(?:time|timing|duration|latency|elapsed)(?:-|$)|-m?s$|^server-timing$|-service-time$"
)
_NO_TIME_HEADER = re.compile(
    r"^(?:date|expires|last-modified|age|access-control|strict-transport)|uptime|timeout|max-age"
)
_NUMBER = re.compile(r"^\d+(?:\.\d+)?(?:ms|s)?$")

# Names of counts, wherever in `usage` they stand; what is written down of a provider comes first.
_COUNTS: Mapping[str, re.Pattern[str]] = {
    "input": re.compile(r"^(?:prompt|input)_tokens$"),
    "output": re.compile(r"^(?:completion|output)_tokens$"),
    "cached": re.compile(
        r"^(?:cached_tokens|(?:prompt_)?cache_(?:hit|read)_(?:input_)?tokens|(?:\w+_)?cached_tokens)$"
    ),
    "reasoning": re.compile(r"^reasoning_tokens$"),
}
_TIME_FIELD = re.compile(r"(?:^|_)(?:time|duration|latency)(?:_|$)|_(?:ms|seconds|secs)$")
_IN_MS = re.compile(r"(?:^|_)ms(?:_|$)")
_IN_SECONDS = re.compile(r"_(?:s|sec|secs|seconds)$")
_NO_TIME_FIELD = re.compile(r"token|count|per_|timestamp|created")


def limit_headers(headers: Mapping[str, str], known: ProviderFacts | None) -> tuple[str, ...]:
    """The names of the headers that say limits and what is left of them, in lower case."""
    fact = known.rate_limits.headers if known is not None else None
    written = (fact.value if fact is not None else None) or ()
    said = {name.lower() for name in written}
    return tuple(sorted(name for name in map(str.lower, headers) if name in said or _LIMIT_HEADER.search(name)))


def time_headers(headers: Mapping[str, str], known: ProviderFacts | None) -> dict[str, str]:
    """The headers by which the server says how long it took, each with its unit: "ms", "s" or "unknown"."""
    fact = known.timing.headers if known is not None else None
    written = (fact.value if fact is not None else None) or {}
    units: dict[str, str] = {name.lower(): unit for name, unit in written.items()}
    found: dict[str, str] = {}
    for name, value in headers.items():
        name = name.lower()
        if name in units:
            found[name] = units[name]
        elif _LIMIT_HEADER.search(name) or _NO_TIME_HEADER.search(name) or not _TIME_HEADER.search(name):
            continue
        elif name == "server-timing":
            found[name] = "ms"  # by its standard
        elif _NUMBER.match(value.strip()):
            found[name] = "ms" if name.endswith("-ms") or value.strip().endswith("ms") else "unknown"
    return dict(sorted(found.items()))


def at_path(value: Any, path: str) -> Any:
    """What stands at a dotted path, in which a number is a place in a list; None where there is nothing."""
    for name in path.split("."):
        if isinstance(value, list):
            value = value[int(name)] if name.isdecimal() and int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, Mapping) else None
    return value


def count_paths(answer: Mapping[str, Any], endpoint: str, known: ProviderFacts | None) -> dict[str, str]:
    """Where an answer has its counts: kind of token to dotted path. Only what is there, as a number."""
    fact = known.usage.get(endpoint) if known is not None else None
    written: Mapping[Any, str] = (fact.value if fact is not None else None) or {}
    found: dict[str, str] = {kind: path for kind, path in written.items() if _is_count(at_path(answer, path))}
    usage = answer.get("usage")
    if isinstance(usage, Mapping):
        for path, value in _leaves(usage, "usage"):
            name = path.rpartition(".")[2]
            for kind, pattern in _COUNTS.items():
                if pattern.match(name) and _is_count(value) and path not in found.values():
                    found.setdefault(kind, path)
    return found


def time_fields(answer: Mapping[str, Any], known: ProviderFacts | None) -> dict[str, str]:
    """Where an answer says how long the server took: dotted path to unit, "ms", "s" or "unknown"."""
    fact = known.timing.fields if known is not None else None
    units: dict[str, str] = dict((fact.value if fact is not None else None) or {})
    found = {path: unit for path, unit in units.items() if isinstance(at_path(answer, path), int | float)}
    for path, value in _leaves(answer, ""):
        name = path.rpartition(".")[2]
        if path in found or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if _TIME_FIELD.search(name) and not _NO_TIME_FIELD.search(name):
            found[path] = "ms" if _IN_MS.search(name) else "s" if _IN_SECONDS.search(name) else "unknown"
    return dict(sorted(found.items()))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _leaves(value: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Every value that is no mapping, with its path. Lists are left alone: what stands there is the answer itself."""
    for name, each in value.items():
        if not isinstance(name, str):
            continue
        here = f"{path}.{name}" if path else name
        if isinstance(each, Mapping):
            yield from _leaves(each, here)
        elif not isinstance(each, list):
            yield here, each


def findings(
    headers: Mapping[str, str],
    answers: Sequence[Mapping[str, Any]],
    counts: Mapping[str, Mapping[str, str]],
    known: ProviderFacts | None,
) -> Iterator[ProviderFinding]:
    """What the heads of answers say of limits and times, and their fields of times and of tokens (by endpoint)."""
    limits = limit_headers(headers, known)
    yield ProviderFinding(
        group="timing and limits",
        looked_at="rate-limit headers",
        seen=", ".join(limits) if limits else "none",
        value=list(limits),
        facts=(MeasuredFact(path=("rate_limits", "headers"), value=list(limits)),) if limits else (),
    )
    yield _times("headers", time_headers(headers, known))
    if not answers:
        return
    fields: dict[str, str] = {}
    for answer in answers:
        fields.update(time_fields(answer, known))
    yield _times("fields", fields)
    for endpoint, paths in counts.items():
        yield ProviderFinding(
            group="timing and limits",
            looked_at=f"tokens, {endpoint}",
            seen=", ".join(f"{kind}: {path}" for kind, path in paths.items()) if paths else "not counted",
            state="seen" if paths else "notable",
            value=dict(paths),
            facts=(MeasuredFact(path=("usage", endpoint), value=dict(paths)),) if paths else (),
        )


def _times(where: str, times: dict[str, str]) -> ProviderFinding:
    """The times that the server tells in its "headers" or "fields"."""
    usable = {name: unit for name, unit in times.items() if unit != "unknown"}
    return ProviderFinding(
        group="timing and limits",
        looked_at=f"server-timing {where}",
        seen=", ".join(f"{name} ({unit})" for name, unit in times.items()) if times else "none",
        value=times,
        facts=(MeasuredFact(path=("timing", where), value=usable),) if usable else (),
    )
