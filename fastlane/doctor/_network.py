"""Checks of the network: DNS, TCP, TLS, HTTP/2 settings, and how long an idle connection lives."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

import httpx2

from .._clock import now_ns
from ..records.ledger import seconds_shown
from ..transport import PHASES, Opening, Phases, Transport
from ..transport.protocols.h2 import Http2Connection, PeerLimits
from ._findings import MeasuredFact, ProviderFinding, found, in_ms
from ._session import DoctorSession
from .target import Target

# A resolver that asks others takes tens of milliseconds; one that caches takes one.
_SLOW_DNS_NS = 50_000_000

# Below this an HTTP/2 window holds up a body that TCP would have let through (RFC 9113's first window).
_SMALL_WINDOW = 65_536
_FEW_STREAMS = 32

# TCP that is answered from so much nearer than HTTP is answered by something in between.
_IN_BETWEEN_NS = 5_000_000

# Of the longest idle time: each of these is tried on a connection of its own, all at the same time.
_SHARES = (0.1, 0.25, 0.5, 1.0)


class OpenedConnection(NamedTuple):
    """How a connection was opened, and what two requests on it have shown."""

    opening: Opening
    round_trip_ns: int | None = None
    """The shortest that took a round trip to the server's end of HTTP/2; None without HTTP/2."""
    limits: PeerLimits | None = None
    """None without HTTP/2."""

    @property
    def tcp_ns(self) -> int:
        """What connecting took."""
        return self.opening.connect_ended_ns - self.opening.connect_started_ns

    @property
    def tls_ns(self) -> int | None:
        """What the TLS handshake took; None without TLS."""
        started, ended = self.opening.tls_started_ns, self.opening.tls_ended_ns
        return None if started is None or ended is None else ended - started


def look(session: DoctorSession) -> Iterator[ProviderFinding]:
    """Resolve the host and open connections as clients do. A step that fails is the last one."""
    target = session.target
    try:
        started = now_ns()
        resolved = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        dns_ns = now_ns() - started
    except OSError as error:
        yield found("DNS", f"no address for {target.host!r} ({type(error).__name__})", "no address")
        return
    yield judge_dns(target, list(dict.fromkeys(str(address[0]) for *_, address in resolved)), dns_ns)
    try:
        connections = [_opened(session) for _ in range(1 if session.settings.quick else 3)]
    except httpx2.HTTPError as error:
        yield judge_no_connection(target, error)
        return
    tcp_ns = [each.tcp_ns for each in connections]
    tls_ns = [each.tls_ns for each in connections if each.tls_ns is not None]
    last = connections[-1]
    yield found("TCP", f"{_spread(tcp_ns)}, one round trip", value={"ms": [in_ms(each) for each in tcp_ns]})
    yield judge_tls(target, tls_ns, last.opening.tls_version)
    if last.limits is not None:
        yield judge_http2(last.limits)
    round_trips_ns = [each.round_trip_ns for each in connections if each.round_trip_ns is not None]
    yield judge_round_trip(min(tcp_ns), round_trips_ns)
    yield judge_version(target, last.opening.alpn)
    total = dns_ns + min(tcp_ns) + min(tls_ns, default=0)
    words = f"{seconds_shown(total / 1e9)} before the first byte of a request can leave"
    yield found("a new connection", words, "pays for connections", value={"ms": in_ms(total)})


def _opened(session: DoctorSession) -> OpenedConnection:
    """Open a connection and send two requests on it. Raises httpx2.HTTPError where none can be opened."""
    transport, first, second = Transport(ping_s=None), Phases(), Phases()
    with httpx2.Client(transport=transport, timeout=session.settings.timeout_s) as client:
        try:
            for phases in (first, second):
                client.get(session.models_url, headers=session.settings.headers, extensions={PHASES: phases})
        except httpx2.HTTPError:
            if first.opening is None:
                raise
            # It was opened; that requests are not answered is for the list of models to say.
        found_http = [member.http for member in transport.members()]
    assert first.opening is not None
    opened = OpenedConnection(first.opening)
    http = next((each for each in found_http if isinstance(each, Http2Connection)), None)
    if http is None:
        return opened
    # Each has taken a round trip at least, and what the server or this machine did meanwhile.
    waits_ns = [*http.round_trips_ns]
    if opened.tls_ns is not None:
        waits_ns.append(opened.tls_ns)
    if second.first_byte_ns is not None and second.send_ended_ns is not None:
        waits_ns.append(second.first_byte_ns - second.send_ended_ns)
    return opened._replace(round_trip_ns=min(waits_ns, default=None), limits=http.peer_limits)


def http_client(timeout_s: float, *, through_proxy: bool = False) -> httpx2.Client:
    """Return a client on connections of its own: the transport's, or the HTTP library's where there is a proxy."""
    if through_proxy:
        return httpx2.Client(http2=True, timeout=timeout_s)
    return httpx2.Client(transport=Transport(ping_s=None, idle_s=7_200), timeout=timeout_s)


def judge_dns(target: Target, addresses: Sequence[str], taken_ns: int) -> ProviderFinding:
    """Judge the host's addresses, and what resolving them took."""
    if list(addresses) == [target.host]:
        return found("DNS", "not needed: the URL holds an address", value={"ms": None})
    slow = taken_ns > _SLOW_DNS_NS and not target.is_local
    count = f"{len(addresses)} address{'' if len(addresses) == 1 else 'es'}"
    words = f"{count} in {seconds_shown(taken_ns / 1e9)}: {_few(addresses)}"
    return found("DNS", words, slow and "slow DNS", value={"ms": in_ms(taken_ns), "addresses": list(addresses)})


def judge_no_connection(target: Target, error: httpx2.HTTPError) -> ProviderFinding:
    """Say why no connection could be opened."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return found("TLS", f"no handshake: {cause.verify_message}", "certificate not trusted")
    timed_out = isinstance(error, httpx2.ConnectTimeout)
    is_tcp = isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError | ConnectionResetError)
    if target.is_secure and not is_tcp and not timed_out:
        why = getattr(cause, "reason", None) or type(error).__name__
        return found("TLS", f"no handshake: {why}", "no TLS", port=target.port)
    refused = isinstance(cause, ConnectionRefusedError)
    problem = "connection refused" if refused else "connect timeout" if timed_out else "unreachable"
    name = type(cause if is_tcp else error).__name__
    return found("TCP", f"no connection to {target.host}, port {target.port} ({name})", problem, port=target.port)


def judge_tls(target: Target, taken_ns: Sequence[int], version: str | None) -> ProviderFinding:
    """Judge what encryption costs, and which version it is."""
    if not target.is_secure:
        return found("TLS", "none: the URL begins with http://", not target.is_local and "not encrypted")
    words = f"{version or 'unknown version'}, {_spread(taken_ns)}"
    value = {"ms": [in_ms(each) for each in taken_ns], "version": version}
    return found("TLS", words, version not in ("TLSv1.3", None) and "old TLS", value=value)


def judge_http2(limits: PeerLimits) -> ProviderFinding:
    """Judge what an HTTP/2 server allows on one connection."""
    streams = "no limit" if limits.most_streams is None else f"{limits.most_streams:,} requests"
    return found(
        "HTTP/2 limits",
        f"{streams} at once, window {_bytes(limits.stream_window)} per request, "
        f"{_bytes(limits.connection_window)} per connection",
        min(limits.stream_window, limits.connection_window) < _SMALL_WINDOW and "small window",
        limits.most_streams is not None and limits.most_streams < _FEW_STREAMS and "few streams",
        value=limits._asdict(),
    )


def judge_round_trip(tcp_ns: int, http_ns: Sequence[int]) -> ProviderFinding:
    """Judge how far away the provider is, by TCP and by HTTP/2."""
    words = f"{seconds_shown(tcp_ns / 1e9)} by TCP"
    if http_ns:
        words += f", {seconds_shown(median(http_ns) / 1e9)} to its HTTP/2"
    between = bool(http_ns) and min(http_ns) - tcp_ns > _IN_BETWEEN_NS and min(http_ns) > 2 * tcp_ns
    value = {"tcp_ms": in_ms(tcp_ns), "http2_ms": [in_ms(each) for each in http_ns]}
    return found("round trip", words, between and "intermediary", value=value)


def judge_version(target: Target, alpn: str | None) -> ProviderFinding:
    """Judge which version of HTTP the server has chosen."""
    http2 = alpn == "h2"
    fact = MeasuredFact(path=("http2",), value=http2, note=f"ALPN: {alpn or 'none'}")
    return found(
        "HTTP version",
        "HTTP/2" if http2 else "HTTP/1.1",
        target.is_secure and not http2 and "no HTTP/2",
        value={"alpn": alpn, "http2": http2},
        facts=[fact] if target.is_secure else [],
    )


def look_idle(session: DoctorSession) -> Iterator[ProviderFinding]:
    """Leave connections idle for growing times, at the same time, and use each again."""
    outcomes: dict[float, str] = {}
    pauses = [round(session.settings.idle_s * share, 3) for share in _SHARES]

    def run(pause_s: float) -> None:
        outcomes[pause_s] = _after(session, pause_s)

    threads = [threading.Thread(target=run, args=(pause,), daemon=True) for pause in pauses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield judge_idle(outcomes)


def _after(session: DoctorSession, pause_s: float) -> str:
    """Return what became of a connection that was idle: "kept", "closed", "dead", or the class of another error."""
    settings = session.settings
    url = session.models_url
    phases = Phases()
    try:
        with http_client(settings.timeout_s) as client:
            client.get(url, headers=settings.headers)
            threading.Event().wait(pause_s)
            try:
                client.get(url, headers=settings.headers, extensions={PHASES: phases})
            except httpx2.HTTPError:
                return "dead"
    except httpx2.HTTPError as error:
        return type(error).__name__
    return "kept" if phases.reused and not phases.resent else "closed"


def judge_idle(outcomes: dict[float, str]) -> ProviderFinding:
    """Judge what became of connections, by their idle times in seconds."""

    def shortest(outcome: str) -> float | None:
        return min((pause for pause, each in outcomes.items() if each == outcome), default=None)

    lived = max((pause for pause, each in outcomes.items() if each == "kept"), default=0.0)
    closed, dead = shortest("closed"), shortest("dead")
    value = {"at_least_s": lived or None, "closed_within_s": closed, "dead_within_s": dead}
    if dead is not None and (closed is None or dead < closed):
        return found(
            "idle life", f"dead within {dead:g} s, and the server did not say so", "dead when idle", value=value
        )
    if closed is not None:
        words = f"closed by the server within {closed:g} s without a call"
        words += f", kept for {lived:g} s" if lived else ""
        return found("idle life", words, "closed when idle", value=value, lived=lived)
    if not lived:
        errors = ", ".join(sorted(set(outcomes.values())))
        return found("idle life", f"could not be tried ({errors})", "error", value=value)
    return found("idle life", f"at least {lived:g} s without a call: none was closed", value=value)


def _spread(taken_ns: Sequence[int]) -> str:
    """Return a few durations in words: the median and the range."""
    if len(taken_ns) < 2:
        return seconds_shown(taken_ns[0] / 1e9) if taken_ns else "not timed"
    middle, least, most = (seconds_shown(each / 1e9) for each in (median(taken_ns), min(taken_ns), max(taken_ns)))
    return f"{middle} ({least} to {most})"


def _bytes(count: int) -> str:
    if count >= 1_048_576:
        return f"{count / 1_048_576:,.0f} MiB"
    return f"{count / 1_024:,.0f} KiB" if count >= 1_024 else f"{count} bytes"


def _few(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
