"""What the fields of an answer say: where its token counts stand, and the times that the server measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._findings import Finding, Seen

if TYPE_CHECKING:
    from ..providers import ProviderFacts

# Names of counts, wherever in `usage` they stand; what is written down of a provider comes first.
_COUNTS: Mapping[str, re.Pattern[str]] = {
    "input": re.compile(r"^(?:prompt|input)_tokens$"),
    "output": re.compile(r"^(?:completion|output)_tokens$"),
    "cached": re.compile(
        r"^(?:cached_tokens|(?:prompt_)?cache_(?:hit|read)_(?:input_)?tokens|(?:\w+_)?cached_tokens)$"
    ),
    "reasoning": re.compile(r"^reasoning_tokens$"),
}
_TIME = re.compile(r"(?:^|_)(?:time|duration|latency)(?:_|$)|_(?:ms|seconds|secs)$")
_IN_MS = re.compile(r"(?:^|_)ms(?:_|$)")
_IN_SECONDS = re.compile(r"_(?:s|sec|secs|seconds)$")
_NO_TIME = re.compile(r"token|count|per_|timestamp|created")


def at_path(value: Any, path: str) -> Any:
    """What stands at a dotted path; None where there is nothing."""
    for name in path.split("."):
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
        if _TIME.search(name) and not _NO_TIME.search(name):
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
    answers: Sequence[Mapping[str, Any]], counts: Mapping[str, Mapping[str, str]], known: ProviderFacts | None
) -> Iterator[Finding]:
    """What the answers' fields say: the times, and where the counts of tokens stand (by endpoint)."""
    times: dict[str, str] = {}
    for answer in answers:
        times.update(time_fields(answer, known))
    usable = {path: unit for path, unit in times.items() if unit != "unknown"}
    yield Finding(
        group="timing and limits",
        looked_at="server-timing fields",
        seen=", ".join(f"{path} ({unit})" for path, unit in times.items()) if times else "none",
        value=times,
        facts=(Seen(path=("timing", "fields"), value=usable),) if usable else (),
    )
    for endpoint, paths in counts.items():
        yield Finding(
            group="timing and limits",
            looked_at=f"tokens, {endpoint}",
            seen=", ".join(f"{kind}: {path}" for kind, path in paths.items()) if paths else "not counted",
            state="seen" if paths else "notable",
            value=dict(paths),
            facts=(Seen(path=("usage", endpoint), value=dict(paths)),) if paths else (),
        )
