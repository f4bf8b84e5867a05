"""What the steps of the way to a provider mean, in words."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from statistics import median

from ._findings import Group, MeasuredFact, ProviderFinding, in_ms, milliseconds
from ._line import Http2Settings, LineError
from .target import Target

_WAY: Group = "the way there"
_CONNECTION: Group = "the connection"

# A resolver that asks others takes tens of milliseconds; one that remembers takes one.
_SLOW_DNS_NS = 50_000_000

# Below this an HTTP/2 window holds up a body that TCP would have let through (RFC 9113's first window).
_SMALL_WINDOW = 65_536

# TCP that is answered from so much nearer than HTTP is answered by somebody in between.
_IN_BETWEEN_NS = 5_000_000

_SOON_DAYS = 14


def no_address(target: Target, error: OSError) -> ProviderFinding:
    """The host has no address."""
    return ProviderFinding(
        group=_WAY,
        looked_at="DNS",
        seen=f"no address for {target.host!r} ({type(error).__name__})",
        state="failed",
        advice="Check the spelling of the URL, and whether this machine can resolve names at all.",
    )


def addresses(target: Target, found: Sequence[str], taken_ns: int) -> ProviderFinding:
    """The host's addresses, and what asking for them took."""
    if list(found) == [target.host]:
        return ProviderFinding(
            group=_WAY, looked_at="DNS", seen="not needed: the URL holds an address", value={"ms": None}
        )
    slow = taken_ns > _SLOW_DNS_NS and not target.is_local
    return ProviderFinding(
        group=_WAY,
        looked_at="DNS",
        seen=f"{_count(len(found), 'address', 'addresses')} in {milliseconds(taken_ns)}: {_some(found)}",
        state="notable" if slow else "seen",
        advice="Paid again by every new connection unless something caches it; a kept connection pays nothing."
        if slow
        else "",
        value={"ms": in_ms(taken_ns), "addresses": list(found)},
    )


def no_connection(target: Target, error: OSError | None) -> ProviderFinding:
    """Nobody takes the connection."""
    if isinstance(error, ConnectionRefusedError):
        advice = f"Nothing listens on port {target.port} there: check the port, and whether the server runs."
    elif isinstance(error, TimeoutError):
        advice = "Nothing answers: a firewall, a VPN that is off, or the wrong host. Try from another network."
    else:
        advice = "This network has no way there: check the connection, VPN and proxy settings."
    kind = type(error).__name__ if error is not None else "no error"
    return ProviderFinding(
        group=_WAY,
        looked_at="TCP",
        seen=f"no connection to {target.host}, port {target.port} ({kind})",
        state="failed",
        advice=advice,
    )


def tcp(taken_ns: Sequence[int], answering: Sequence[str], silent: Sequence[tuple[str, str]]) -> ProviderFinding:
    """How long a connection takes: one round trip."""
    value = {
        "ms": [in_ms(each) for each in taken_ns],
        "answering": list(answering),
        "silent": [{"address": address, "error": error} for address, error in silent],
    }
    seen = f"{_spread(taken_ns)}, one round trip"
    if not silent:
        return ProviderFinding(group=_WAY, looked_at="TCP", seen=seen, value=value)
    names = _some([f"{address} ({error})" for address, error in silent])
    return ProviderFinding(
        group=_WAY,
        looked_at="TCP",
        seen=f"{seen}; no answer from {names}",
        state="notable",
        advice="Connections go to whichever address answers first, so this costs a delay at most.",
        value=value,
    )


def no_tls(target: Target, error: ssl.SSLError) -> ProviderFinding:
    """The handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = getattr(error, "verify_message", None) or "not trusted"
        advice = (
            "The certificate is not trusted here. If it should be (a company's proxy, a test server), name its "
            "authority's file in SSL_CERT_FILE."
        )
    else:
        why = getattr(error, "reason", None) or type(error).__name__
        advice = f"Nothing on port {target.port} speaks TLS as this machine does: check the port. Does it want http://?"
    return ProviderFinding(group=_WAY, looked_at="TLS", seen=f"no handshake: {why}", state="failed", advice=advice)


def tls(target: Target, taken_ns: Sequence[int], version: str | None, days_left: float | None) -> ProviderFinding:
    """What encryption costs, and which version it is."""
    if not target.is_secure:
        return ProviderFinding(
            group=_WAY,
            looked_at="TLS",
            seen="none: the URL begins with http://",
            state="seen" if target.is_local else "notable",
            advice="" if target.is_local else "Key and prompts can be read by everybody on the way.",
        )
    value = {"ms": [in_ms(each) for each in taken_ns], "version": version, "certificate_days": days_left}
    seen = f"{version or 'unknown version'}, {_spread(taken_ns)}"
    advice = ""
    if version not in ("TLSv1.3", None):
        advice = "One round trip more than TLS 1.3 takes, for every new connection."
    if days_left is not None and days_left < _SOON_DAYS:
        seen += f", certificate ends in {days_left:.0f} days"
        advice = f"{advice} The certificate ends soon.".strip()
    return ProviderFinding(
        group=_WAY, looked_at="TLS", seen=seen, state="notable" if advice else "seen", advice=advice, value=value
    )


def http2(said: Http2Settings) -> ProviderFinding:
    """What an HTTP/2 server allows on one connection."""
    small = min(said.stream_window, said.connection_window) < _SMALL_WINDOW
    narrow = said.most_streams is not None and said.most_streams < 32
    advice = []
    if small:
        advice.append("A longer body waits for the server's leave, a round trip each time.")
    if narrow:
        advice.append("More calls at once than that open further connections.")
    streams = "no limit" if said.most_streams is None else f"{said.most_streams:,} requests"
    return ProviderFinding(
        group=_CONNECTION,
        looked_at="HTTP/2 limits",
        seen=f"{streams} at once, window {_bytes(said.stream_window)} per request, "
        f"{_bytes(said.connection_window)} per connection",
        state="notable" if advice else "seen",
        advice=" ".join(advice),
        value={
            "most_streams": said.most_streams,
            "stream_window": said.stream_window,
            "connection_window": said.connection_window,
            "frame_bytes": said.frame_bytes,
            "header_list_bytes": said.header_list_bytes,
        },
    )


def round_trip(tcp_ns: int, ping_ns: Sequence[int], kernel_ns: int | None) -> ProviderFinding:
    """How far away the provider is, by TCP and by HTTP."""
    value = {"tcp_ms": in_ms(tcp_ns), "ping_ms": [in_ms(each) for each in ping_ns], "kernel_ms": in_ms(kernel_ns)}
    seen = f"{milliseconds(tcp_ns)} by TCP"
    if ping_ns:
        seen += f", {milliseconds(median(ping_ns))} to its HTTP/2 (PING)"
    if kernel_ns is not None:
        seen += f", {milliseconds(kernel_ns)} by the kernel"
    between = bool(ping_ns) and min(ping_ns) - tcp_ns > _IN_BETWEEN_NS and min(ping_ns) > 2 * tcp_ns
    return ProviderFinding(
        group=_CONNECTION,
        looked_at="round trip",
        seen=seen,
        state="notable" if between else "seen",
        advice="TCP is answered from nearer than HTTP: something stands in between, such as a proxy."
        if between
        else "",
        value=value,
    )


def http_versions(target: Target, alpn: str | None, http1: bool | None) -> ProviderFinding:
    """Which versions of HTTP are spoken; `http1` is None where that could not be found out."""
    spoken = ["HTTP/2"] if alpn == "h2" else []
    spoken += ["HTTP/1.1"] if http1 else []
    facts = (
        (MeasuredFact(path=("http2",), value=alpn == "h2", note=f"ALPN: {alpn or 'none'}"),) if target.is_secure else ()
    )
    advice = ""
    if not spoken:
        seen = "none that is known here"
    else:
        seen = " and ".join(spoken)
        if http1 is None:
            seen += "; whether HTTP/1.1 too could not be found out"
        elif alpn == "h2" and not http1:
            seen += ", and not HTTP/1.1"
    if target.is_secure and alpn != "h2":
        advice = "Each call at the same time needs a connection of its own: keep them open (Connection())."
    return ProviderFinding(
        group=_CONNECTION,
        looked_at="HTTP versions",
        seen=seen,
        state="notable" if advice else "seen",
        advice=advice,
        value={"alpn": alpn, "http2": alpn == "h2", "http1": http1},
        facts=facts,
    )


def new_connection(dns_ns: int | None, tcp_ns: int, tls_ns: int | None) -> ProviderFinding:
    """What the first call pays before its first byte leaves."""
    total = (dns_ns or 0) + tcp_ns + (tls_ns or 0)
    return ProviderFinding(
        group=_CONNECTION,
        looked_at="a new connection",
        seen=f"{milliseconds(total)} before the first byte of a request can leave",
        advice="A kept connection pays nothing of it: Connection() keeps them, client.warm() opens one ahead.",
        value={"ms": in_ms(total)},
    )


def through_a_proxy() -> ProviderFinding:
    """A proxy stands in between."""
    return ProviderFinding(
        group=_WAY,
        looked_at="DNS, TCP and TLS",
        seen="left out: the system names a proxy for this URL, so the way from here is the way to the proxy",
        state="left out",
        advice="Calls go through the proxy too, over the HTTP library's own connections.",
    )


def no_answer(error: Exception) -> ProviderFinding:
    """The connection stands, and nothing comes over it."""
    said = str(error) if isinstance(error, LineError) else type(error).__name__
    return ProviderFinding(
        group=_CONNECTION,
        looked_at="first word",
        seen=f"no answer: {said}",
        state="failed",
        advice="Something listens there that is no HTTP server: check the port, and whether https:// is right.",
    )


def _spread(taken_ns: Sequence[int]) -> str:
    """A few durations in words."""
    if not taken_ns:
        return "not timed"
    if len(taken_ns) == 1:
        return milliseconds(taken_ns[0])
    return f"{milliseconds(median(taken_ns))} ({milliseconds(min(taken_ns))} to {milliseconds(max(taken_ns))})"


def _bytes(count: int) -> str:
    if count >= 1_048_576:
        return f"{count / 1_048_576:,.0f} MiB"
    return f"{count / 1_024:,.0f} KiB" if count >= 1_024 else f"{count} bytes"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _some(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
