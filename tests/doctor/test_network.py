from __future__ import annotations

import httpx2
import pytest

from fastlane.doctor._network import judge_dns, judge_no_connection, judge_round_trip, judge_tls
from fastlane.doctor._session import target_of

HTTPS = target_of("https://a.example/v1")
MS = 1_000_000


def unreachable() -> httpx2.HTTPError:
    error = httpx2.ConnectError("no connection")
    error.__cause__ = RuntimeError("of the transport")
    error.__cause__.__cause__ = OSError(101, "unreachable")
    return error


@pytest.mark.parametrize(
    ("error", "name", "advice"),
    [
        (httpx2.ConnectTimeout("too late"), "ConnectTimeout", "a firewall"),
        (unreachable(), "OSError", "no network route"),
    ],
)
def test_failed_connection_is_reported_with_advice(error: httpx2.HTTPError, name: str, advice: str) -> None:
    finding = judge_no_connection(HTTPS, error)

    assert finding.state == "failed"
    assert name in finding.seen
    assert advice in finding.advice


def test_slow_network_and_old_tls_are_notable() -> None:
    slow, fast = (judge_dns(HTTPS, ["192.0.2.1", "2001:db8::1"], taken_ns) for taken_ns in (80 * MS, MS))
    assert (slow.state, fast.state) == ("notable", "seen")
    assert slow.seen == "2 addresses in 80.0 ms: 192.0.2.1, 2001:db8::1"

    old, new = (judge_tls(HTTPS, [20 * MS, 30 * MS, 90 * MS], version) for version in ("TLSv1.2", "TLSv1.3"))
    assert old.seen == "TLSv1.2, 30.0 ms (20.0 ms to 90.0 ms)"
    assert "One round trip more" in old.advice
    assert (old.state, new.state) == ("notable", "seen")


def test_proxy_shows_by_http_that_is_farther_away_than_tcp() -> None:
    assert judge_round_trip(MS, [40 * MS, 41 * MS]).state == "notable"
    assert judge_round_trip(40 * MS, [41 * MS, 90 * MS]).state == "seen"
    assert judge_round_trip(40 * MS, []).seen == "40.0 ms by TCP"
