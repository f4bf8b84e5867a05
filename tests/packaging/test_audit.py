"""What the audit says where nothing can be asked, and what it takes for a stranger's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts import audit
from tests.programs import printed_by


def test_user_file_is_foreign_and_python_file_is_not() -> None:
    did = {
        "prefixes": ["/opt/python"],
        "read": ["/opt/python/lib/os.py", "/dev/urandom", "/etc/hosts", "/srv/me/.netrc"],
    }
    assert audit.outside(did) == ["/srv/me/.netrc"]


def test_audited_environment_excludes_outer_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "PYTHONPATH", "https_proxy", "HTTPS_PROXY", "OTEL_TRACES_EXPORTER", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, "x")
    assert audit.clean({"OPENAI_API_KEY": "y"}).get("OPENAI_API_KEY") == "y"
    assert (
        not {"PYTHONPATH", "https_proxy", "HTTPS_PROXY", "OTEL_TRACES_EXPORTER", "SSL_CERT_FILE"}
        & audit.clean({}).keys()
    )


@pytest.mark.parametrize(
    ("answers", "outcome", "details"),
    [
        ({}, "skipped", "jinja2==2.8"),
        ({"pypi": "knows"}, "holds", "1 packages, asked of pypi"),
        ({"osv": "knows"}, "holds", "asked of osv"),
        ({"pypi": "finds"}, "broken", "bad 1.0: CVE-1, fixed in 1.1"),
    ],
)
def test_advisory_service_must_know_a_known_bad_release(
    answers: dict[str, str], outcome: str, details: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad: list[dict[str, Any]] = [
        {"name": "jinja2", "version": "2.8", "vulns": [{"id": "CVE-0", "fix_versions": ["2.9"]}]}
    ]
    pins: dict[str, list[dict[str, Any]]] = {
        "knows": [{"name": "good", "version": "1.0", "vulns": []}],
        "finds": [{"name": "bad", "version": "1.0", "vulns": [{"id": "CVE-1", "fix_versions": ["1.1"]}]}],
    }

    def asked(service: str, versions: list[str]) -> list[dict[str, Any]]:
        if service not in answers:
            return [{"name": "jinja2", "skip_reason": "not found: x"}]
        return bad if versions == [audit._KNOWN_TO_BE_BAD] else pins[answers[service]]

    monkeypatch.setattr(audit, "_asked", asked)
    (finding,) = audit.advisories()
    assert finding.outcome == outcome
    assert details in finding.details


def test_audit_probe_prints_effects_after_the_output(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text("print('said'); open('written', 'w').close()")
    first, last = printed_by("-I", "-B", str(audit._PROBE), "run", str(file), cwd=tmp_path).splitlines()
    assert first == "said"
    assert json.loads(last)["written"] == ["written"]
