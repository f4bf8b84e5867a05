"""What is asked of the kernel for every TCP connection, and what it knows of one."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import sys
from typing import NamedTuple

_IDLE_S = 60
_INTERVAL_S = 10
_PROBES = 3

# Two silences are bounded by the same time. Sent data that nobody acknowledges (TCP_USER_TIMEOUT; Linux alone would
# go on for about 15 minutes), and a connection on which nothing is sent, that is one that waits for an answer, whose
# peer does not even acknowledge the kernel's probes (SO_KEEPALIVE). A peer that is there acknowledges both at once, in
# its kernel, however long its application thinks: waiting long for an answer is no reason for either.
# The two are not independent. Where TCP_USER_TIMEOUT is set, Linux no longer counts the probes: it gives up at the
# first one unanswered once the peer has been silent for so long (tcp_keepalive_timer in net/ipv4/tcp_timer.c). With
# 30 s and a first probe after 60 s, one lost packet would end a call that waits. 60 + 3 * 10 s leaves three probes,
# spread over an interruption of 20 s, such as that of a network that is being changed.
USER_TIMEOUT_S: float = _IDLE_S + _PROBES * _INTERVAL_S

_TCP_USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)
_KEEP_IDLE: int | None = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)
_KEEP_INTERVAL: int | None = getattr(socket, "TCP_KEEPINTVL", None)
_KEEP_COUNT: int | None = getattr(socket, "TCP_KEEPCNT", None)

# struct tcp_info of include/uapi/linux/tcp.h, which only ever grows at its end: eight bytes of small fields, then
# 32-bit ones, of which tcpi_rtt (smoothed, in microseconds) is the 16th and tcpi_snd_cwnd (in segments) the 19th.
_TCP_INFO = struct.Struct("=68xI8xI")
_TCP_INFO_OPTION: int | None = getattr(socket, "TCP_INFO", None) if sys.platform == "linux" else None


class TcpInfo(NamedTuple):
    """What the kernel measured on a connection."""

    round_trip_time_ns: int
    """Smoothed."""
    congestion_window: int
    """In segments."""


def prepare(sock: socket.socket, user_timeout_s: float | None) -> None:
    """Make a TCP socket that is about to connect non-blocking, undelayed, and sure to notice that its peer is gone.

    `user_timeout_s`: how long the peer may leave data or probes unacknowledged; None for the kernel's own patience with
    data. Probes are sent after 60 s and then every 10 s, and closer together where that leaves fewer than three.
    """
    sock.setblocking(False)
    idle_s, interval_s = _IDLE_S, _INTERVAL_S
    if user_timeout_s is not None and user_timeout_s < USER_TIMEOUT_S:
        interval_s = max(1, int(user_timeout_s / USER_TIMEOUT_S * _INTERVAL_S))
        idle_s = max(1, int(user_timeout_s) - _PROBES * interval_s)
    _set(sock, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _set(sock, socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    _set(sock, socket.IPPROTO_TCP, _KEEP_IDLE, idle_s)
    _set(sock, socket.IPPROTO_TCP, _KEEP_INTERVAL, interval_s)
    _set(sock, socket.IPPROTO_TCP, _KEEP_COUNT, _PROBES)
    if user_timeout_s is not None:
        _set(sock, socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, max(1, int(user_timeout_s * 1_000)))


def _set(sock: socket.socket, level: int, option: int | None, value: int) -> None:
    """Ask for an option where the system has it: a connection without it is still a connection."""
    if option is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(level, option, value)


def tcp_info(sock: socket.socket) -> TcpInfo | None:
    """What the kernel measured so far; None where it does not say, or has measured nothing."""
    if _TCP_INFO_OPTION is None:
        return None
    try:
        round_trip_time_us, congestion_window = _TCP_INFO.unpack(
            sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO_OPTION, _TCP_INFO.size)
        )
    except (OSError, struct.error):  # closed, no TCP, or another kernel's idea of the option
        return None
    return TcpInfo(round_trip_time_us * 1_000, congestion_window) if round_trip_time_us else None


def is_ready(sock: socket.socket, timeout_s: float | None, *, write: bool) -> bool:
    """Whether the socket can be read from or written to without waiting."""
    try:
        if hasattr(select, "poll"):
            poller = select.poll()
            poller.register(sock, select.POLLOUT if write else select.POLLIN)
            return bool(poller.poll(None if timeout_s is None else timeout_s * 1e3))
        reading, writing = ([], [sock]) if write else ([sock], [])
        return any(select.select(reading, writing, [], timeout_s))
    except (OSError, ValueError):
        return True  # closed: the next use says so
