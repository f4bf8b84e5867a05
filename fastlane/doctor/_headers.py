"""What the headers of answers say: limits and times, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ._findings import Finding, Seen

if TYPE_CHECKING:
    from ..providers import ProviderFacts

_LIMIT = re.compile(r"rate-?limit|^retry-after")
_TIME = re.compile(r"(?:^|-)(?:time|timing|duration|latency|elapsed)(?:-|$)|-m?s$|^server-timing$|-service-time$")
_NOT_A_TIME = re.compile(r"^(?:date|expires|last-modified|age|access-control|strict-transport)|uptime|timeout|max-age")
_NUMBER = re.compile(r"^\d+(?:\.\d+)?(?:ms|s)?$")


def limit_headers(headers: Mapping[str, str], known: ProviderFacts | None) -> tuple[str, ...]:
    """The names of the headers that say limits and what is left of them, in lower case."""
    fact = known.rate_limits.headers if known is not None else None
    written = (fact.value if fact is not None else None) or ()
    said = {name.lower() for name in written}
    return tuple(sorted(name for name in map(str.lower, headers) if name in said or _LIMIT.search(name)))


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
        elif _LIMIT.search(name) or _NOT_A_TIME.search(name) or not _TIME.search(name):
            continue
        elif name == "server-timing":
            found[name] = "ms"  # by its standard
        elif _NUMBER.match(value.strip()):
            found[name] = "ms" if name.endswith("-ms") or value.strip().endswith("ms") else "unknown"
    return dict(sorted(found.items()))


def findings(headers: Mapping[str, str], known: ProviderFacts | None) -> tuple[Finding, Finding]:
    """What the headers say of limits, and of times."""
    limits, times = limit_headers(headers, known), time_headers(headers, known)
    usable = {name: unit for name, unit in times.items() if unit != "unknown"}
    return (
        Finding(
            group="timing and limits",
            looked_at="rate-limit headers",
            seen=", ".join(limits) if limits else "none",
            value=list(limits),
            facts=(Seen(path=("rate_limits", "headers"), value=list(limits)),) if limits else (),
        ),
        Finding(
            group="timing and limits",
            looked_at="server-timing headers",
            seen=", ".join(f"{name} ({unit})" for name, unit in times.items()) if times else "none",
            value=times,
            facts=(Seen(path=("timing", "headers"), value=usable),) if usable else (),
        ),
    )
