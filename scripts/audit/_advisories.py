"""Whether advisories are known against what the project is pinned to, asked of pip-audit."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.audit._finding import Finding, judged
from scripts.environments import ROOT

PART = "advisories"
_WHAT = "no advisory is known against the versions in constraints.txt"
# A release of 2016 with advisories against it: where nothing is known of it, nothing can be known of anything.
_KNOWN_TO_BE_BAD = "jinja2==2.8"
# Where pip-audit can ask, in this order: the package index's own data, and the database that those come from.
_SERVICES = ("pypi", "osv")
_LIMIT_S = 120.0
_ANSWER_S = "10"


def findings() -> list[Finding]:
    """Ask for advisories, of the first service that answers; skipped, with the reason, where none does."""
    silent = []
    for service in _SERVICES:
        control, said = _asked(service, [_KNOWN_TO_BE_BAD])
        if not _vulnerabilities(control):
            silent.append(f"{service}: {said}")
            continue
        pins = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if "==" in line]
        found, said = _asked(service, pins)
        if not found:
            silent.append(f"{service}: {said}")
            continue
        unknown = [str(one.get("name")) for one in found if "skip_reason" in one]
        right = f"{len(found) - len(unknown)} packages, asked of {service}"
        if unknown:
            right += f"; nothing is known of {', '.join(unknown)}"
        return [judged(PART, _WHAT, _vulnerabilities(found), right)]
    return [
        Finding(
            PART,
            _WHAT,
            "skipped",
            f"no service for advisories can be reached from here, not even for {_KNOWN_TO_BE_BAD}, which has some ("
            f"{'; '.join(silent)}). Run it again where it can be",
        )
    ]


def _asked(service: str, pins: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
    """What pip-audit knows of these versions, and why that is nothing where it is."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text("\n".join(pins) + "\n", encoding="utf-8")
        command = [
            *(sys.executable, "-m", "pip_audit", "--vulnerability-service", service, "--requirement", str(file)),
            *("--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", _ANSWER_S),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            return [], f"no answer in {_LIMIT_S:.0f} s"
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        # Its last line names several errors, the innermost last.
        last = next(reversed(done.stderr.strip().splitlines()), "")
        return [], next(reversed(re.findall(r"\w+Error", last)), "no answer")
    reasons = [str(one["skip_reason"]) for one in found if "skip_reason" in one]
    return found, reasons[0].partition(":")[0] if reasons else "no advisory"


def _vulnerabilities(found: Sequence[dict[str, Any]]) -> list[str]:
    return [
        f"{one['name']} {one['version']}: {bug['id']}, mended in {', '.join(bug['fix_versions']) or 'no version'}"
        for one in found
        for bug in one.get("vulns", ())
    ]
