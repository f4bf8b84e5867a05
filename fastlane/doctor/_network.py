"""Checks that cost nothing: of the network, how long an idle connection lives, the list of models, and whose it is."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import httpx2

from .._clock import now_ns
from ..providers import facts_of, identified_facts
from ..providers.registry import UNKNOWN
from ..records.formatting import counted, duration
from ..transport import Opening, Phases, Transport
from ..transport.protocols.h2 import Http2Connection, PeerLimits
from ._findings import MeasuredFact, ProviderFinding, found, in_ms
from ._session import DoctorSession, Target, of_status, printable, problem_of

# A resolver that asks others takes tens of milliseconds; one that caches takes one.
_SLOW_DNS_NS = 50_000_000
# Below this an HTTP/2 window holds up a body that TCP would have let through (RFC 9113's first window).
_SMALL_WINDOW = 65_536
_FEW_STREAMS = 32
# TCP that is answered from so much nearer than HTTP is answered by something in between.
_IN_BETWEEN_NS = 5_000_000
# Of the longest idle time: each of these is tried on a connection of its own, all at the same time.
_SHARES = (0.1, 0.25, 0.5, 1.0)


def look_network(session: DoctorSession) -> Iterator[ProviderFinding]:
    """Resolve the host and open connections as clients do. A step that fails is the last one."""
    target = session.settings.target
    try:
        started = now_ns()
        resolved = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        dns_ns = now_ns() - started
    except OSError as error:
        yield found("DNS", f"no address for {target.host!r} ({type(error).__name__})", "no address")
        return
    yield judge_dns(target, list(dict.fromkeys(str(address[0]) for *_, address in resolved)), dns_ns)
    try:
        opened = [_opened(session) for _ in range(1 if session.settings.quick else 3)]
    except httpx2.HTTPError as error:
        yield judge_no_connection(target, error)
        return
    openings = [opening for opening, _, _ in opened]
    tcp_ns = [each.connect_ended_ns - each.connect_started_ns for each in openings]
    tls_ns = [each.tls_ended_ns - each.tls_started_ns for each in openings if each.tls_ended_ns and each.tls_started_ns]
    yield found("TCP", f"{_spread(tcp_ns)}, one round trip", value={"ms": [in_ms(each) for each in tcp_ns]})
    yield judge_tls(target, tls_ns, openings[-1].tls_version)
    if (limits := opened[-1][2]) is not None:
        streams, windows = limits.most_streams, (limits.stream_window, limits.connection_window)
        words = f"{'no limit' if streams is None else f'{streams:,} requests'} at once, window "
        words += f"{_bytes(windows[0])} per request, {_bytes(windows[1])} per connection"
        small = min(windows) < _SMALL_WINDOW and "small window"
        few = streams is not None and streams < _FEW_STREAMS and "few streams"
        yield found("HTTP/2 limits", words, small, few, value=limits._asdict())
    yield judge_round_trip(min(tcp_ns), [each for _, each, _ in opened if each is not None])
    alpn = openings[-1].alpn
    fact = MeasuredFact(path=("http2",), value=alpn == "h2", note=f"ALPN: {alpn or 'none'}")
    words, problem = ("HTTP/2", "") if alpn == "h2" else ("HTTP/1.1", target.is_secure and "no HTTP/2")
    yield found("HTTP version", words, problem, facts=[fact] if target.is_secure else [])
    total = dns_ns + min(tcp_ns) + min(tls_ns, default=0)
    words = f"{duration(total / 1e9)} before the first byte of a request can leave"
    yield found("a new connection", words, "pays for connections", value={"ms": in_ms(total)})


def _opened(session: DoctorSession) -> tuple[Opening, int | None, PeerLimits | None]:
    """Open a connection; return how, the round trip to the server's HTTP, and HTTP/2's limits. Raises HTTPError."""
    transport, first, second = Transport(ping_s=None), Phases(), Phases()
    with httpx2.Client(transport=transport, timeout=session.settings.timeout_s) as client:
        try:
            for phases in (first, second):
                session.list_models(client, phases)
        except httpx2.HTTPError:
            if first.opening is None:
                raise
            # It was opened; that requests are not answered is for the list of models to say.
        limits = [member.http.peer_limits for member in transport.members() if isinstance(member.http, Http2Connection)]
    assert first.opening is not None
    return first.opening, second.round_trip_time_ns or first.round_trip_time_ns, limits[0] if limits else None


def http_client(timeout_s: float, *, through_proxy: bool = False) -> httpx2.Client:
    """Return a client on connections of its own: the transport's, or the HTTP library's where there is a proxy."""
    if through_proxy:
        return httpx2.Client(http2=True, timeout=timeout_s)
    return httpx2.Client(transport=Transport(ping_s=None, idle_s=7_200), timeout=timeout_s)


def judge_dns(target: Target, addresses: Sequence[str], taken_ns: int) -> ProviderFinding:
    if list(addresses) == [target.host]:
        return found("DNS", "not needed: the URL holds an address", value={"ms": None})
    slow = taken_ns > _SLOW_DNS_NS and not target.is_local
    words = f"{counted(len(addresses), 'address', 'addresses')} in {duration(taken_ns / 1e9)}: "
    words += ", ".join(addresses[:3]) + (f" and {len(addresses) - 3} more" if len(addresses) > 3 else "")
    return found("DNS", words, slow and "slow DNS", value={"ms": in_ms(taken_ns), "addresses": list(addresses)})


def judge_no_connection(target: Target, error: httpx2.HTTPError) -> ProviderFinding:
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
    if not target.is_secure:
        return found("TLS", "none: the URL begins with http://", not target.is_local and "not encrypted")
    words = f"{version or 'unknown version'}, {_spread(taken_ns)}"
    value = {"ms": [in_ms(each) for each in taken_ns], "version": version}
    return found("TLS", words, version not in ("TLSv1.3", None) and "old TLS", value=value)


def judge_round_trip(tcp_ns: int, http_ns: Sequence[int]) -> ProviderFinding:
    words = f"{duration(tcp_ns / 1e9)} by TCP"
    if http_ns:
        words += f", {duration(median(http_ns) / 1e9)} to its HTTP"
    between = bool(http_ns) and min(http_ns) - tcp_ns > _IN_BETWEEN_NS and min(http_ns) > 2 * tcp_ns
    value = {"tcp_ms": in_ms(tcp_ns), "http_ms": [in_ms(each) for each in http_ns]}
    return found("round trip", words, between and "intermediary", value=value)


def begin_idle(session: DoctorSession) -> Callable[[], ProviderFinding]:
    """Leave connections idle for growing times, at the same time, and use each again. Return what waits for that."""
    outcomes: dict[float, str] = {}

    def run(pause_s: float) -> None:
        outcomes[pause_s] = _after(session, pause_s)

    pauses = [round(session.settings.idle_s * share, 3) for share in _SHARES]
    threads = [threading.Thread(target=run, args=(pause,), daemon=True) for pause in pauses]
    for thread in threads:
        thread.start()

    def finish() -> ProviderFinding:
        for thread in threads:
            thread.join(session.settings.idle_s + 3 * session.settings.timeout_s)
        return judge_idle(dict(outcomes))

    return finish


def _after(session: DoctorSession, pause_s: float) -> str:
    """Return what became of a connection that was idle: "kept", "closed", "dead", or the class of another error."""
    phases = Phases()
    try:
        with http_client(session.settings.timeout_s) as client:
            session.list_models(client)
            threading.Event().wait(pause_s)
            try:
                session.list_models(client, phases)
            except httpx2.HTTPError:
                return "dead"
    except httpx2.HTTPError as error:
        return type(error).__name__
    return "kept" if phases.reused and not phases.resent else "closed"


def judge_idle(outcomes: dict[float, str]) -> ProviderFinding:
    times = {kind: [pause for pause, each in outcomes.items() if each == kind] for kind in ("kept", "closed", "dead")}
    lived = max(times["kept"], default=0.0)
    closed, dead = (min(times[kind], default=None) for kind in ("closed", "dead"))
    words, problem = f"at least {lived:g} s without a call: none was closed", ""
    if dead is not None and (closed is None or dead < closed):
        words, problem = f"dead within {dead:g} s, and the server did not say so", "dead when idle"
    elif closed is not None:
        kept = f", kept for {lived:g} s" if lived else ""
        words, problem = f"closed by the server within {closed:g} s without a call{kept}", "closed when idle"
    elif not lived:
        words, problem = f"could not be tried ({', '.join(sorted(set(outcomes.values())))})", "error"
    value = {"at_least_s": lived or None, "closed_within_s": closed, "dead_within_s": dead}
    return found("idle life", words, problem, value=value, lived=lived)


def _spread(taken_ns: Sequence[int]) -> str:
    if len(taken_ns) < 2:
        return duration(taken_ns[0] / 1e9) if taken_ns else "not timed"
    middle, least, most = (duration(each / 1e9) for each in (median(taken_ns), min(taken_ns), max(taken_ns)))
    return f"{middle} ({least} to {most})"


def _bytes(count: int) -> str:
    if count >= 1_048_576:
        return f"{count / 1_048_576:,.0f} MiB"
    return f"{count / 1_024:,.0f} KiB" if count >= 1_024 else f"{count} bytes"


# The list of models, and which provider this is


def look_models(session: DoctorSession) -> Iterator[ProviderFinding]:
    """List the models twice over one connection, as the calls of an application go."""
    phases = Phases()
    try:
        session.list_models()
    except (httpx2.RemoteProtocolError, httpx2.ReadError) as error:
        if session.settings.target.is_secure:
            raise
        yield found("models", type(error).__name__, "wants https")  # TLS makes nothing of plain HTTP
        return
    started = now_ns()
    answer = session.list_models(phases=phases)
    taken_ns = now_ns() - started
    session.is_reached = True
    words = f"{duration(taken_ns / 1e9)} over {phases.http_version or 'a connection of another library'}"
    is_new = phases.reused is False
    value = {"ms": in_ms(taken_ns), "http_version": phases.http_version, "reused": phases.reused}
    words += ", on a new connection: the first one was not kept" if is_new else ""
    yield found("a request without a model", words, is_new and "not kept", value=value)
    models = _models_in(answer) if answer.status_code == 200 else None
    session.models = None if models is None else tuple(model["id"] for model in models)
    session.needs_key = answer.status_code in (401, 403)
    yield _judge_models(session, answer.status_code)
    yield _identify(session, answer.headers, models[0].get("owned_by") if models else None)


def _models_in(answer: httpx2.Response) -> list[dict[str, Any]] | None:
    """Return the models of a list in OpenAI's shape; None for anything else."""
    try:
        document = answer.json()
    except (ValueError, RecursionError):
        return None
    data = document.get("data") if isinstance(document, dict) else document
    if not isinstance(data, list):
        return None
    return [model for model in data if isinstance(model, dict) and isinstance(model.get("id"), str)]


def _judge_models(session: DoctorSession, status: int) -> ProviderFinding:
    wanted, listed = session.settings.model, session.models
    words, problem = of_status(status), problem_of(status)
    if listed is not None:
        names = [printable(name) for name in listed[:3]]
        words = f"{len(listed)} listed" + (f": {', '.join(names)}" if names else "") + (", …" * (len(listed) > 3))
        problem = ""
        if wanted is not None and listed and wanted not in listed:
            words, problem = f"{words}, and {wanted!r} is not one of them", "not listed"
    elif status in (401, 403) and session.settings.key is None:
        words, problem = f"{status}: a key is needed, and there is none", "key needed"
    elif 300 <= status < 400:
        words, problem = f"{status}: a redirect", "redirect"
    elif status == 200:
        words, problem = "200, but no list of models", "no list"
    elif status == 400 and not session.settings.target.is_secure:
        problem = "answered like https"  # so answer servers that get plain HTTP where they expect TLS
    value = {"status": status, "models": None if listed is None else len(listed)}
    return found("models", words, problem, value=value, key_source=session.settings.key_source)


def _identify(session: DoctorSession, headers: Mapping[str, str], owner: Any) -> ProviderFinding:
    by_origin = facts_of(session.settings.target.origin)
    by_word = identified_facts(headers, owned_by=owner if isinstance(owner, str) else None)
    session.known = known = by_word if by_origin.slug == UNKNOWN and by_word is not None else by_origin
    words = f"{known.name or known.slug}, by {'what it says of itself' if known is by_word else 'its address'}"
    if known.slug == UNKNOWN:
        words = "no facts are on record"
    elif by_word is not None and by_word.slug != known.slug:
        words += f"; by what it says of itself {by_word.name or by_word.slug}"
    server = printable(headers.get("server", ""))
    words += f' (server: "{server}")' if server else ""
    return found("what it is", words, value={"server": server, "by_its_word": by_word.slug if by_word else None})
