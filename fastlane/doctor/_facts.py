"""The measured facts as a file that plays can load."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import tomli_w

from .._clock import wall_ns
from ..providers import ProviderFacts

if TYPE_CHECKING:
    from ._examination import Examination

# Rows without a place in a facts file that its reader may want to know.
_REMARKED = ("idle life", "round trip", "HTTP/2 limits", "what it is")

# Facts of the other groups are the server's, whichever model is asked.
_OF_THE_MODEL = ("streaming", "prompt cache", "structured outputs")


def facts_file(examination: Examination, *, today: date | None = None) -> str | None:
    """Return the text of a facts file with the measured facts, and nothing else; None if there are none."""
    # The last fact of a place counts.
    facts = {fact.path: (finding, fact) for finding in examination.findings for fact in finding.facts}
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
