"""What was measured, as a facts file that plays can load."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Any

from .._clock import wall_ns
from ..errors import MissingExtraError
from ..providers import ProviderFacts
from ._examination import Examination
from ._findings import MeasuredFact, ProviderFinding, lasting

# What a facts file has no place for, but its reader may want to know.
_REMARKED = ("idle life", "round trip", "HTTP/2 limits", "what it is")

# Facts of the other groups are the server's, whichever model is asked.
_OF_THE_MODEL = ("streaming", "prompt cache", "service tiers", "structured outputs")


def facts_file(examination: Examination, *, today: date | None = None) -> str | None:
    """The text of a facts file with what was measured, and nothing else; None where nothing was.

    Raises MissingExtraError without `tomli_w`.
    """
    facts = lasting(examination.findings)
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
        model = examination.model if finding.group in _OF_THE_MODEL else None
        _put(document, fact, source=target.base_url, today=today, model=model)
    try:
        import tomli_w
    except ImportError as error:
        raise MissingExtraError("cli", "tomli_w") from error
    ProviderFacts.model_validate(document)
    return f"{_remarks(examination.findings, today)}\n{tomli_w.dumps(document)}"


def _put(document: dict[str, Any], fact: MeasuredFact, *, source: str, today: date, model: str | None) -> None:
    *tables, last = fact.path
    table = document
    for name in tables:
        table = table.setdefault(name, {})
    by = "fastlane doctor" if model is None else f"fastlane doctor, model {model}"
    note = f"{fact.note}; {by}" if fact.note else by
    table[last] = {"value": fact.value, "source": source, "checked": today, "evidence": "measured", "note": note}


def _remarks(findings: tuple[ProviderFinding, ...], today: date) -> str:
    lines = [f"# Measured by fastlane doctor on {today.isoformat()}, from one machine at one moment."]
    lines += [f"# {each.looked_at}: {each.seen}" for each in findings if each.looked_at in _REMARKED]
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n"
