"""The way to the provider, walked step by step."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .._clock import now_ns, wall_ns
from ..transport.drivers.connection import tcp_info
from . import _way
from ._findings import ProviderFinding
from ._line import HostAddress, Http2Line, Http2Settings, LineError, connect, opened, resolve, secure
from .target import Target

_MOST_ADDRESSES = 4


@dataclass(kw_only=True)
class Steps:
    """What each step took, in nanoseconds, and what it said."""

    dns_ns: int | None = None
    addresses: tuple[HostAddress, ...] = ()
    answering: list[tuple[HostAddress, int]] = field(default_factory=list)
    """Addresses that could be connected to, each with the time it took."""
    silent: list[tuple[HostAddress, str]] = field(default_factory=list)
    """Addresses that could not, each with the class of the error."""
    tcp_ns: list[int] = field(default_factory=list)
    tls_ns: list[int] = field(default_factory=list)
    tls_version: str | None = None
    alpn: str | None = None
    certificate_days: float | None = None
    """Until the server's certificate ends."""
    http2: Http2Settings | None = None
    ping_ns: list[int] = field(default_factory=list)
    kernel_ns: int | None = None
    """The kernel's own smoothed round-trip time."""


def walk(target: Target, steps: Steps, *, rounds: int, timeout_s: float) -> Iterator[ProviderFinding]:
    """Go to the provider, as far as one comes, and say of each step what was seen. Fills `steps` in."""
    try:
        started = now_ns()
        steps.addresses = resolve(target)
        steps.dns_ns = now_ns() - started
    except OSError as error:
        yield _way.no_address(target, error)
        return
    yield _way.addresses(target, [address.ip for address in steps.addresses], steps.dns_ns)
    last: OSError | None = None
    for address in _one_of_each_family_first(steps.addresses)[:_MOST_ADDRESSES]:
        try:
            started = now_ns()
            with connect(address, timeout_s):
                steps.answering.append((address, now_ns() - started))
        except OSError as error:
            last = error
            steps.silent.append((address, type(error).__name__))
    if not steps.answering:
        yield _way.no_connection(target, last)
        return
    address, first_ns = min(steps.answering, key=lambda answered: answered[1])
    steps.tcp_ns.append(first_ns)
    try:
        for at in range(rounds):
            _once(target, address, steps, timeout_s, pings=5 if at == rounds - 1 else 0)
    except ssl.SSLError as error:
        yield _tcp(steps)
        yield _way.no_tls(target, error)
        return
    except (OSError, LineError) as error:
        yield _tcp(steps)
        yield _way.no_answer(error)
        return
    yield _tcp(steps)
    yield _way.tls(target, steps.tls_ns, steps.tls_version, steps.certificate_days)
    if steps.http2 is not None:
        yield _way.http2(steps.http2)
    yield _way.round_trip(min(steps.tcp_ns), steps.ping_ns, steps.kernel_ns)


def answers_in_http1(target: Target, address: HostAddress, headers: Mapping[str, str], timeout_s: float) -> bool:
    """Whether the server answers over HTTP/1.1, where nothing else is offered. Raises OSError and LineError."""
    with opened(target, address, "never", timeout_s) as line:
        if isinstance(line, Http2Line):
            return False
        line.get(f"{target.path}/models", headers, timeout_s)
        return True


def _tcp(steps: Steps) -> ProviderFinding:
    return _way.tcp(
        steps.tcp_ns,
        [address.ip for address, _ in steps.answering],
        [(address.ip, error) for address, error in steps.silent],
    )


def _once(target: Target, address: HostAddress, steps: Steps, timeout_s: float, *, pings: int) -> None:
    """Open one connection, with a stamp at each step."""
    started = now_ns()
    sock = connect(address, timeout_s)
    steps.tcp_ns.append(now_ns() - started)
    if target.is_secure:
        started = now_ns()
        encrypted = secure(sock, target, "prefer")
        steps.tls_ns.append(now_ns() - started)
        steps.tls_version = encrypted.version()
        steps.alpn = encrypted.selected_alpn_protocol()
        steps.certificate_days = _days_left(encrypted)
        sock = encrypted
    with sock:
        if steps.alpn == "h2":
            line = Http2Line(sock, target)
            steps.http2 = line.greet(timeout_s)
            steps.ping_ns += [line.ping(timeout_s) for _ in range(pings)]
        measured = tcp_info(sock)
        if measured is not None:
            steps.kernel_ns = measured.round_trip_time_ns


def _days_left(sock: ssl.SSLSocket) -> float | None:
    certificate = sock.getpeercert()
    ends = certificate.get("notAfter") if certificate else None
    return (ssl.cert_time_to_seconds(ends) - wall_ns() / 1e9) / 86_400 if isinstance(ends, str) else None


def _one_of_each_family_first(addresses: tuple[HostAddress, ...]) -> list[HostAddress]:
    """The addresses so that the first few are of every family, in the resolver's order otherwise."""
    rank: dict[int, int] = {}
    ranked: list[tuple[int, HostAddress]] = []
    for address in addresses:
        rank[address.family] = rank.get(address.family, 0) + 1
        ranked.append((rank[address.family], address))
    return [address for _, address in sorted(ranked, key=lambda each: each[0])]
