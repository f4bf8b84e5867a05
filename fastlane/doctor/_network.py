"""Checks of the network: DNS, TCP, TLS, HTTP/2 settings, and how long an idle connection lives."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import h2.connection
import h2.events
import httpx2
from h2.config import H2Configuration
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from .._clock import now_ns, wall_ns
from ..transport import PHASES, Phases, Transport, certificates_now
from ..transport.drivers.connect import ssl_context
from ..transport.pool.settings import Http2
from ._findings import MeasuredFact, ProviderFinding, found, in_ms, milliseconds
from ._session import DoctorSession
from .target import Target

_MOST_ADDRESSES = 4
_PINGS = 5

# A resolver that asks others takes tens of milliseconds; one that caches takes one.
_SLOW_DNS_NS = 50_000_000

# Below this an HTTP/2 window holds up a body that TCP would have let through (RFC 9113's first window).
_SMALL_WINDOW = 65_536
_FEW_STREAMS = 32

# TCP that is answered from so much nearer than HTTP is answered by something in between.
_IN_BETWEEN_NS = 5_000_000

_SOON_DAYS = 14

# Of the longest idle time: each of these is tried on a connection of its own, all at the same time.
_SHARES = (0.1, 0.25, 0.5, 1.0)

Address = tuple[int, Any]
"""Family and socket address."""


@dataclass(kw_only=True)
class Connecting:
    """What opening connections took, in nanoseconds, and what the server said on them."""

    dns_ns: int = 0
    tcp_ns: list[int] = field(default_factory=list)
    tls_ns: list[int] = field(default_factory=list)
    tls_version: str | None = None
    alpn: str | None = None
    certificate_days: float | None = None
    """Until the server's certificate ends."""
    most_streams: int | None = None
    """Requests at once on one connection; None where the server sets no limit."""
    stream_window: int | None = None
    """Bytes of one request's body that may be unacknowledged; None without HTTP/2."""
    connection_window: int | None = None
    ping_ns: list[int] = field(default_factory=list)


def look(session: DoctorSession) -> Iterator[ProviderFinding]:
    """Open connections step by step. A step that fails is the last one."""
    target, settings = session.target, session.settings
    seen = Connecting()
    try:
        started = now_ns()
        resolved = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        seen.dns_ns = now_ns() - started
    except OSError as error:
        yield found("DNS", f"no address for {target.host!r} ({type(error).__name__})", "no address")
        return
    addresses = list(dict.fromkeys((family, sockaddr) for family, _, _, _, sockaddr in resolved))
    yield judge_dns(target, [str(sockaddr[0]) for _, sockaddr in addresses], seen.dns_ns)
    answering: list[tuple[int, Address]] = []
    silent: list[tuple[str, OSError]] = []
    for address in _one_of_each_family_first(addresses)[:_MOST_ADDRESSES]:
        try:
            started = now_ns()
            with _connected(address, settings.timeout_s):
                answering.append((now_ns() - started, address))
        except OSError as error:
            silent.append((str(address[1][0]), error))
    if not answering:
        yield judge_no_connection(target, silent[-1][1])
        return
    first_ns, address = min(answering, key=lambda each: each[0])
    seen.tcp_ns.append(first_ns)
    failed: ProviderFinding | None = None
    try:
        for _ in range(1 if settings.quick else 3):
            _open(target, address, seen, settings.timeout_s)
        if seen.alpn == "h2":
            _greet(target, address, seen, settings.timeout_s)
    except ssl.SSLError as error:
        failed = judge_no_tls(target, error)
    except (OSError, ProtocolError, EOFError) as error:
        failed = found("HTTP", f"no answer: {type(error).__name__}", "no HTTP")
    yield judge_tcp(seen.tcp_ns, [(name, type(error).__name__) for name, error in silent])
    if failed is not None:
        yield failed
        return
    yield judge_tls(target, seen)
    yield from judge_http2(seen)
    yield judge_round_trip(min(seen.tcp_ns), seen.ping_ns)
    yield judge_versions(target, seen.alpn, _speaks_http1(session))
    total = seen.dns_ns + min(seen.tcp_ns) + min(seen.tls_ns, default=0)
    words = f"{milliseconds(total)} before the first byte of a request can leave"
    yield found("a new connection", words, "pays for connections", value={"ms": in_ms(total)})


def http_client(timeout_s: float, *, through_proxy: bool = False, http2: Http2 = "prefer") -> httpx2.Client:
    """Return a client on connections of its own: the transport's, or the HTTP library's where there is a proxy."""
    if through_proxy:
        return httpx2.Client(http2=True, timeout=timeout_s)
    return httpx2.Client(transport=Transport(ping_s=None, idle_s=7_200, http2=http2), timeout=timeout_s)


def _connected(address: Address, timeout_s: float) -> socket.socket:
    family, sockaddr = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        sock.connect(sockaddr)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


@contextlib.contextmanager
def _secured(target: Target, address: Address, seen: Connecting, timeout_s: float) -> Iterator[socket.socket]:
    """Open a connection with the clients' own TLS settings, with a stamp at each step."""
    started = now_ns()
    with _connected(address, timeout_s) as sock:
        seen.tcp_ns.append(now_ns() - started)
        if not target.is_secure:
            yield sock
            return
        started = now_ns()
        context = ssl_context(True, certificates_now(), "prefer")
        with context.wrap_socket(sock, server_hostname=target.host) as encrypted:
            seen.tls_ns.append(now_ns() - started)
            seen.tls_version = encrypted.version()
            seen.alpn = encrypted.selected_alpn_protocol()
            ends = (encrypted.getpeercert() or {}).get("notAfter")
            if isinstance(ends, str):
                seen.certificate_days = (ssl.cert_time_to_seconds(ends) - wall_ns() / 1e9) / 86_400
            yield encrypted


def _open(target: Target, address: Address, seen: Connecting, timeout_s: float) -> None:
    with _secured(target, address, seen, timeout_s):
        pass


def _greet(target: Target, address: Address, seen: Connecting, timeout_s: float) -> None:
    """Exchange HTTP/2 settings and time a few PINGs. Raises OSError, ProtocolError and EOFError."""
    # Its connection is one more than those whose times are shown.
    with _secured(target, address, Connecting(), timeout_s) as sock:
        http = h2.connection.H2Connection(H2Configuration(header_encoding="utf-8"))
        http.initiate_connection()
        deadline_ns = now_ns() + int(timeout_s * 1e9)

        def until(kind: type[h2.events.Event]) -> None:
            while True:
                sock.sendall(http.data_to_send())
                left_s = (deadline_ns - now_ns()) / 1e9
                if left_s <= 0:
                    raise TimeoutError
                sock.settimeout(left_s)
                data = sock.recv(65_536)
                if not data:
                    raise EOFError
                if any(isinstance(event, kind) for event in http.receive_data(data)):
                    sock.sendall(http.data_to_send())
                    return

        until(h2.events.RemoteSettingsChanged)
        # The first PING is not timed: what widens the connection's window comes before its answer.
        for number in range(_PINGS + 1):
            started = now_ns()
            http.ping(number.to_bytes(8, "big"))
            until(h2.events.PingAckReceived)
            seen.ping_ns.append(now_ns() - started)
        del seen.ping_ns[0]
        said = http.remote_settings
        # h2 has a number of its own where the peer sets none.
        seen.most_streams = said.max_concurrent_streams if SettingCodes.MAX_CONCURRENT_STREAMS in said else None
        seen.stream_window = said.initial_window_size
        seen.connection_window = http.outbound_flow_control_window


def _one_of_each_family_first(addresses: Sequence[Address]) -> list[Address]:
    """Order the addresses so that the first few are of every family, in the resolver's order otherwise."""
    count: dict[int, int] = {}
    ranked: list[tuple[int, Address]] = []
    for address in addresses:
        count[address[0]] = count.get(address[0], 0) + 1
        ranked.append((count[address[0]], address))
    return [address for _, address in sorted(ranked, key=lambda each: each[0])]


def _speaks_http1(session: DoctorSession) -> bool | None:
    """Return whether the server answers where HTTP/1.1 alone is offered; None where that is not known."""
    try:
        with http_client(session.settings.timeout_s, http2="never") as client:
            client.get(f"{session.target.base_url}/models", headers=session.settings.headers)
    except httpx2.TimeoutException:
        return None
    except httpx2.HTTPError:
        return False
    return True


def judge_dns(target: Target, addresses: Sequence[str], taken_ns: int) -> ProviderFinding:
    """Judge the host's addresses, and what resolving them took."""
    if list(addresses) == [target.host]:
        return found("DNS", "not needed: the URL holds an address", value={"ms": None})
    slow = taken_ns > _SLOW_DNS_NS and not target.is_local
    count = f"{len(addresses)} address{'' if len(addresses) == 1 else 'es'}"
    words = f"{count} in {milliseconds(taken_ns)}: {_few(addresses)}"
    return found("DNS", words, slow and "slow DNS", value={"ms": in_ms(taken_ns), "addresses": list(addresses)})


def judge_no_connection(target: Target, error: OSError) -> ProviderFinding:
    """Say why no connection could be opened."""
    refused, timed_out = isinstance(error, ConnectionRefusedError), isinstance(error, TimeoutError)
    problem = "connection refused" if refused else "connect timeout" if timed_out else "unreachable"
    words = f"no connection to {target.host}, port {target.port} ({type(error).__name__})"
    return found("TCP", words, problem, port=target.port)


def judge_tcp(taken_ns: Sequence[int], silent: Sequence[tuple[str, str]]) -> ProviderFinding:
    """Judge how long a connection takes, which is one round trip."""
    words = f"{_spread(taken_ns)}, one round trip"
    if silent:
        words += f"; no answer from {_few([f'{address} ({error})' for address, error in silent])}"
    value = {
        "ms": [in_ms(each) for each in taken_ns],
        "silent": [{"address": address, "error": error} for address, error in silent],
    }
    return found("TCP", words, bool(silent) and "silent addresses", value=value)


def judge_no_tls(target: Target, error: ssl.SSLError) -> ProviderFinding:
    """Say why the TLS handshake failed."""
    untrusted = isinstance(error, ssl.SSLCertVerificationError)
    why = getattr(error, "verify_message" if untrusted else "reason", None) or type(error).__name__
    problem = "certificate not trusted" if untrusted else "no TLS"
    return found("TLS", f"no handshake: {why}", problem, port=target.port)


def judge_tls(target: Target, seen: Connecting) -> ProviderFinding:
    """Judge what encryption costs, and which version it is."""
    if not target.is_secure:
        return found("TLS", "none: the URL begins with http://", not target.is_local and "not encrypted")
    days = seen.certificate_days
    ends = days is not None and days < _SOON_DAYS
    words = f"{seen.tls_version or 'unknown version'}, {_spread(seen.tls_ns)}"
    if ends:
        words += f", certificate ends in {days:.0f} days"
    old = seen.tls_version not in ("TLSv1.3", None)
    value = {"ms": [in_ms(each) for each in seen.tls_ns], "version": seen.tls_version, "certificate_days": days}
    return found("TLS", words, old and "old TLS", ends and "certificate ends", value=value)


def judge_http2(seen: Connecting) -> Iterator[ProviderFinding]:
    """Judge what an HTTP/2 server allows on one connection; nothing without HTTP/2."""
    if seen.stream_window is None or seen.connection_window is None:
        return
    streams = "no limit" if seen.most_streams is None else f"{seen.most_streams:,} requests"
    yield found(
        "HTTP/2 limits",
        f"{streams} at once, window {_bytes(seen.stream_window)} per request, "
        f"{_bytes(seen.connection_window)} per connection",
        min(seen.stream_window, seen.connection_window) < _SMALL_WINDOW and "small window",
        seen.most_streams is not None and seen.most_streams < _FEW_STREAMS and "few streams",
        value={
            "most_streams": seen.most_streams,
            "stream_window": seen.stream_window,
            "connection_window": seen.connection_window,
        },
    )


def judge_round_trip(tcp_ns: int, ping_ns: Sequence[int]) -> ProviderFinding:
    """Judge how far away the provider is, by TCP and by HTTP."""
    words = f"{milliseconds(tcp_ns)} by TCP"
    if ping_ns:
        words += f", {milliseconds(median(ping_ns))} to its HTTP/2 (PING)"
    between = bool(ping_ns) and min(ping_ns) - tcp_ns > _IN_BETWEEN_NS and min(ping_ns) > 2 * tcp_ns
    value = {"tcp_ms": in_ms(tcp_ns), "ping_ms": [in_ms(each) for each in ping_ns]}
    return found("round trip", words, between and "intermediary", value=value)


def judge_versions(target: Target, alpn: str | None, http1: bool | None) -> ProviderFinding:
    """Judge which versions of HTTP the server speaks; `http1` is None where that is not known."""
    http2 = alpn == "h2"
    words = " and ".join(["HTTP/2"] * http2 + ["HTTP/1.1"] * bool(http1)) or "none that is known here"
    if http2 and not http1:
        words += "; HTTP/1.1 is not known" if http1 is None else ", and not HTTP/1.1"
    fact = MeasuredFact(path=("http2",), value=http2, note=f"ALPN: {alpn or 'none'}")
    value = {"alpn": alpn, "http2": http2, "http1": http1}
    secure = target.is_secure
    return found(
        "HTTP versions", words, secure and not http2 and "no HTTP/2", value=value, facts=[fact] if secure else []
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
    url = f"{session.target.base_url}/models"
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
        return milliseconds(taken_ns[0]) if taken_ns else "not timed"
    return f"{milliseconds(median(taken_ns))} ({milliseconds(min(taken_ns))} to {milliseconds(max(taken_ns))})"


def _bytes(count: int) -> str:
    if count >= 1_048_576:
        return f"{count / 1_048_576:,.0f} MiB"
    return f"{count / 1_024:,.0f} KiB" if count >= 1_024 else f"{count} bytes"


def _few(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
