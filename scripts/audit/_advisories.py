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

from scripts.environments import ROOT
from scripts.wheel import Finding, judged

_WHAT = "no advisory is known against the versions in constraints.txt"
# A release of 2016 with advisories against it: where nothing is known of it, nothing can be known of anything.
_KNOWN_TO_BE_BAD = "jinja2==2.8"


def findings() -> list[Finding]:
    """Ask for advisories, of the first service that answers; skipped, with the reason, where none does."""
    pins = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if "==" in line]
    silent = []
    # The package index's own data, and the database that those come from.
    for service in ("pypi", "osv"):
        found, problem = _asked(service, [_KNOWN_TO_BE_BAD])
        if _vulnerabilities(found):
            found, problem = _asked(service, pins)
            if found:
                unknown = [str(one.get("name")) for one in found if "skip_reason" in one]
                right = f"{len(found) - len(unknown)} packages, asked of {service}"
                right += f"; nothing is known of {', '.join(unknown)}" if unknown else ""
                return [judged("advisories", _WHAT, _vulnerabilities(found), right)]
        silent.append(f"{service}: {problem}")
    reason = (
        f"no service for advisories can be reached from here, not even for {_KNOWN_TO_BE_BAD}, which has some ("
        f"{'; '.join(silent)}). Run it again where it can be"
    )
    return [Finding("advisories", _WHAT, "skipped", reason)]


def _asked(service: str, pins: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
    """Return what pip-audit knows of these versions, and why that is nothing where it is."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text("\n".join(pins) + "\n", encoding="utf-8")
        command = [
            *(sys.executable, "-m", "pip_audit", "--vulnerability-service", service, "--requirement", str(file)),
            *("--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", "10"),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120.0, check=False)
        except subprocess.TimeoutExpired:
            return [], "no answer in 120 s"
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        # Its last line names several errors, the innermost last.
        errors = re.findall(r"\w+Error", done.stderr.strip().rpartition("\n")[2])
        return [], errors[-1] if errors else "no answer"
    reasons = [str(one["skip_reason"]) for one in found if "skip_reason" in one]
    return found, reasons[0].partition(":")[0] if reasons else "no advisory"


def _vulnerabilities(found: Sequence[dict[str, Any]]) -> list[str]:
    return [
        f"{one['name']} {one['version']}: {bug['id']}, mended in {', '.join(bug['fix_versions']) or 'no version'}"
        for one in found
        for bug in one.get("vulns", ())
    ]
