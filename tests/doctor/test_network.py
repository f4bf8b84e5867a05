from __future__ import annotations

import ssl

import httpx2
import pytest

from fastlane.doctor._network import (
    judge_dns,
    judge_no_connection,
    judge_round_trip,
    judge_tls,
)
from fastlane.doctor._session import target_of

HTTPS = target_of("https://a.example/v1")
MS = 1_000_000


def caused_by(cause: Exception) -> httpx2.HTTPError:
    error = httpx2.ConnectError("no connection")
    error.__cause__ = RuntimeError("of the transport")
    error.__cause__.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "name", "advice"),
    [
        (caused_by(ConnectionRefusedError()), "ConnectionRefusedError", "Nothing listens on port 443"),
        (httpx2.ConnectTimeout("too late"), "ConnectTimeout", "a firewall"),
        (caused_by(OSError(101, "unreachable")), "OSError", "no network route"),
    ],
)
def test_failed_connection_is_reported_with_advice(error: httpx2.HTTPError, name: str, advice: str) -> None:
    finding = judge_no_connection(HTTPS, error)

    assert finding.state == "failed"
    assert name in finding.seen
    assert advice in finding.advice


def test_slow_answer_of_the_resolver_is_notable() -> None:
    slow, fast = (judge_dns(HTTPS, ["192.0.2.1", "2001:db8::1"], taken_ns) for taken_ns in (80 * MS, MS))

    assert (slow.state, fast.state) == ("notable", "seen")
    assert slow.seen == "2 addresses in 80.0 ms: 192.0.2.1, 2001:db8::1"


def test_untrusted_certificate_and_plain_port_are_distinguished() -> None:
    untrusted = ssl.SSLCertVerificationError(1, "failed")
    untrusted.verify_message = "self-signed certificate"

    assert "SSL_CERT_FILE" in judge_no_connection(HTTPS, caused_by(untrusted)).advice
    assert "self-signed certificate" in judge_no_connection(HTTPS, caused_by(untrusted)).seen
    assert "check the port" in judge_no_connection(HTTPS, caused_by(ssl.SSLError(1, "wrong version"))).advice


@pytest.mark.parametrize(("version", "advice"), [("TLSv1.3", ""), ("TLSv1.2", "One round trip more")])
def test_tls_findings_advise_on_version_and_expiry(version: str, advice: str) -> None:
    finding = judge_tls(HTTPS, [20 * MS, 30 * MS, 90 * MS], version)

    assert finding.seen == f"{version}, 30.0 ms (20.0 ms to 90.0 ms)"
    assert advice in finding.advice
    assert (finding.state == "notable") is bool(advice)


def test_proxy_shows_by_http_that_is_farther_away_than_tcp() -> None:
    assert judge_round_trip(MS, [40 * MS, 41 * MS]).state == "notable"
    assert judge_round_trip(40 * MS, [41 * MS, 90 * MS]).state == "seen"
    assert judge_round_trip(40 * MS, []).seen == "40.0 ms by TCP"
