"""The measured facts: as a file that plays can load, and compared with the facts on record."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import tomli_w

from .._clock import wall_ns
from ..providers import ProviderFacts
from ..providers.registry import UNKNOWN
from ._findings import MeasuredFact, ProviderFinding, found

if TYPE_CHECKING:
    from ._examination import Examination

# Rows without a place in a facts file that its reader may want to know.
_REMARKED = ("idle life", "round trip", "HTTP/2 limits", "what it is")

# Facts of the other groups are the server's, whichever model is asked.
_OF_THE_MODEL = ("streaming", "prompt cache", "structured outputs")


def facts_file(examination: Examination, *, today: date | None = None) -> str | None:
    """Return the text of a facts file with the measured facts, and nothing else; None if there are none."""
    facts = measured_facts(examination.findings)
    if not facts:
        return None
    today = today or datetime.fromtimestamp(wall_ns() / 1e9, tz=UTC).date()
    target = examination.settings.target
    host = target.host if target.port in (443, 80) else f"{target.host} {target.port}"
    document: dict[str, Any] = {
        "slug": "doctor_" + (re.sub(r"[^a-z0-9]+", "_", host.lower()).strip("_") or "here"),
        "name": f"{target.host}, as measured",
        "base_url": target.base_url,
        "origins": [target.origin],
    }
    for finding, fact in facts.values():
        *tables, last = fact.path
        table = document
        for name in tables:
            table = table.setdefault(name, {})
        by = "fastlane doctor" + (f", model {examination.model}" if finding.group in _OF_THE_MODEL else "")
        note = f"{fact.note}; {by}" if fact.note else by
        written = {"value": fact.value, "source": target.base_url, "checked": today, "evidence": "measured"}
        table[last] = {**written, "note": note}
    ProviderFacts.model_validate(document)
    remarks = [f"Measured by fastlane doctor on {today.isoformat()}, from one machine at one moment."]
    remarks += [f"{each.looked_at}: {each.seen}" for each in examination.findings if each.looked_at in _REMARKED]
    comments = "".join(f"# {remark.replace(chr(10), ' ')}\n" for remark in remarks)
    return f"{comments}\n{tomli_w.dumps(document)}"


def measured_facts(findings: Iterable[ProviderFinding]) -> dict[tuple[str, ...], tuple[ProviderFinding, MeasuredFact]]:
    """Return the facts by their places, each with its finding; the last one of a place counts."""
    return {fact.path: (finding, fact) for finding in findings for fact in finding.facts}


def compare(known: ProviderFacts | None, findings: Iterable[ProviderFinding]) -> list[ProviderFinding]:
    """Compare the measured facts with those on record. No finding where none of them is on record."""
    if known is None or known.slug == UNKNOWN:
        return []
    recorded = {path: fact for path, fact in known.all_facts() if fact.value is not None}
    both = {path: fact for path, (_, fact) in measured_facts(findings).items() if path in recorded}
    differing = {
        ".".join(path): f"{_shown(fact.value)} here, {_shown(recorded[path].value)} on record "
        f"({recorded[path].evidence})"
        for path, fact in both.items()
        if differs(fact, recorded[path].value)
    }
    words = "; ".join(f"{name}: {how}" for name, how in differing.items())
    words = words or f"agrees with all {len(both)} facts that were measured"
    value = {"provider": known.slug, "compared": len(both), "differing": list(differing)}
    return [found("known facts", words, bool(differing) and "facts differ", value=value)] if both else []


def differs(measured: MeasuredFact, recorded: Any) -> bool:
    """Return whether both cannot be true: a check sees some of what there is, but never what there is not."""
    value = measured.value
    if isinstance(recorded, Mapping):
        return any(name in recorded and recorded[name] != each for name, each in value.items())
    if isinstance(recorded, list | tuple):
        if not isinstance(value, list | tuple):  # a parameter that was taken, of which some values are known
            return value is False
        if measured.path[0] == "encodings" and measured.is_whole:
            return set(value) != set(recorded)
        return not {str(each).lower() for each in value} <= {str(each).lower() for each in recorded}
    return bool(value != recorded)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "yes" if value is True else "no" if value is False else str(value)
