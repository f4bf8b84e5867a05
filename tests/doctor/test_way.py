from __future__ import annotations

import ssl

import pytest

from fastlane.doctor._findings import ProviderFinding
from fastlane.doctor._network import (
    Connecting,
    judge_dns,
    judge_http2,
    judge_no_connection,
    judge_no_tls,
    judge_round_trip,
    judge_tcp,
    judge_tls,
    judge_versions,
)
from fastlane.doctor.target import target_of

HTTPS = target_of("https://a.example/v1")
MS = 1_000_000


def said(
    *, most_streams: int | None = 100, stream_window: int = 1 << 20, connection_window: int = 1 << 20
) -> Connecting:
    return Connecting(most_streams=most_streams, stream_window=stream_window, connection_window=connection_window)


def judge_limits(seen: Connecting) -> ProviderFinding:
    (finding,) = judge_http2(seen)
    return finding


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (ConnectionRefusedError(), "Nothing listens on port 443"),
        (TimeoutError(), "a firewall"),
        (OSError(101, "unreachable"), "no network route"),
    ],
)
def test_a_connection_that_fails_says_what_to_do(error: OSError, advice: str) -> None:
    finding = judge_no_connection(HTTPS, error)

    assert finding.state == "failed"
    assert type(error).__name__ in finding.seen
    assert advice in finding.advice


def test_a_slow_answer_of_the_resolver_is_notable() -> None:
    slow, fast = (judge_dns(HTTPS, ["192.0.2.1", "2001:db8::1"], taken_ns) for taken_ns in (80 * MS, MS))

    assert (slow.state, fast.state) == ("notable", "seen")
    assert slow.seen == "2 addresses in 80 ms: 192.0.2.1, 2001:db8::1"


def test_addresses_that_do_not_answer_are_named() -> None:
    finding = judge_tcp([10 * MS], [("2001:db8::1", "TimeoutError")])

    assert finding.state == "notable"
    assert finding.seen == "10 ms, one round trip; no answer from 2001:db8::1 (TimeoutError)"


def test_a_certificate_that_is_not_trusted_is_told_from_a_port_without_tls() -> None:
    untrusted = ssl.SSLCertVerificationError(1, "failed")
    untrusted.verify_message = "self-signed certificate"

    assert "SSL_CERT_FILE" in judge_no_tls(HTTPS, untrusted).advice
    assert "self-signed certificate" in judge_no_tls(HTTPS, untrusted).seen
    assert "check the port" in judge_no_tls(HTTPS, ssl.SSLError(1, "wrong version")).advice


@pytest.mark.parametrize(
    ("version", "days", "advice"),
    [
        ("TLSv1.3", 80.0, ""),
        ("TLSv1.2", 80.0, "One round trip more"),
        ("TLSv1.3", 3.0, "ends soon"),
    ],
)
def test_what_tls_costs_too_much_is_said(version: str, days: float, advice: str) -> None:
    finding = judge_tls(
        HTTPS, Connecting(tls_ns=[20 * MS, 30 * MS, 90 * MS], tls_version=version, certificate_days=days)
    )

    assert finding.seen.startswith(f"{version}, 30 ms (20 ms to 90 ms)")
    assert advice in finding.advice
    assert (finding.state == "notable") is bool(advice)


def test_no_encryption_is_notable_only_where_somebody_can_listen() -> None:
    assert judge_tls(target_of("http://a.example"), Connecting()).state == "notable"
    assert judge_tls(target_of("http://localhost"), Connecting()).state == "seen"


def test_narrow_limits_of_http2_are_notable() -> None:
    assert judge_limits(said()).state == "seen"
    assert "waits for a window update" in judge_limits(said(stream_window=65_535)).advice
    assert "further connections" in judge_limits(said(most_streams=8)).advice
    assert judge_limits(said(most_streams=None)).seen.startswith("no limit at once")


def test_a_proxy_shows_by_http_that_is_farther_away_than_tcp() -> None:
    assert judge_round_trip(MS, [40 * MS, 41 * MS]).state == "notable"
    assert judge_round_trip(40 * MS, [41 * MS, 90 * MS]).state == "seen"
    assert judge_round_trip(40 * MS, []).seen == "40 ms by TCP"


@pytest.mark.parametrize(
    ("alpn", "http1", "seen", "measured"),
    [
        ("h2", True, "HTTP/2 and HTTP/1.1", True),
        ("h2", False, "HTTP/2, and not HTTP/1.1", True),
        ("h2", None, "HTTP/2; HTTP/1.1 is not known", True),
        ("http/1.1", True, "HTTP/1.1", False),
        (None, True, "HTTP/1.1", False),
        (None, False, "none that is known here", False),
    ],
)
def test_versions_are_said_and_the_fact_is_whether_http2_is_spoken(
    alpn: str | None, http1: bool | None, seen: str, measured: bool
) -> None:
    finding = judge_versions(HTTPS, alpn, http1)

    assert finding.seen == seen
    assert [(fact.path, fact.value) for fact in finding.facts] == [(("http2",), measured)]


def test_without_tls_nothing_is_known_of_http2() -> None:
    assert judge_versions(target_of("http://a.example"), None, True).facts == ()
