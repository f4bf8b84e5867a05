"""What is asked of the kernel for every TCP connection, and what it knows of one."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import sys
from functools import cache
from pathlib import Path
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

# struct tcp_info of include/uapi/linux/tcp.h, which only ever grows at its end. What all kernels have: the byte that
# begins with the bit tcpi_delivery_rate_app_limited, tcpi_rto in microseconds, tcpi_snd_mss, tcpi_unacked in segments,
# tcpi_last_data_sent in milliseconds, tcpi_rtt, which is smoothed, in microseconds, and tcpi_snd_cwnd in segments. Then
# tcpi_min_rtt in microseconds and tcpi_delivery_rate in bytes per second (Linux 4.9), and tcpi_snd_wnd (5.4).
_TCP_INFO = struct.Struct("=7xBI4xI4xI16xI20xI8xI64xI8xQ60xI")
_LEAST_TCP_INFO_BYTES = 84
_TCP_INFO_OPTION: int | None = getattr(socket, "TCP_INFO", None) if sys.platform == "linux" else None
_APP_LIMITED = 0x01 if sys.byteorder == "little" else 0x80

_TCP_CONGESTION: int | None = getattr(socket, "TCP_CONGESTION", None)
# The congestion controls of Linux that rule the window themselves (cong_control): nothing is halved behind their back.
_RULE_ALONE = b"bbr"
_SLOW_START_AFTER_IDLE = Path("/proc/sys/net/ipv4/tcp_slow_start_after_idle")


class TcpInfo(NamedTuple):
    """What the kernel measured on a connection."""

    round_trip_time_ns: int
    """Smoothed."""
    congestion_window: int
    """In segments, before what silence takes of it: the kernel does that when it sends again."""
    segment_bytes: int
    time_out_ns: int
    """After which it would send again what nobody has acknowledged."""
    in_flight: int
    """Segments that nobody has acknowledged yet."""
    idle_ns: int
    """Since it sent data, in whole milliseconds."""
    least_round_trip_time_ns: int
    """Of the last minutes, without what a late acknowledgement adds; the smoothed one where the kernel does not say."""
    delivery_rate: float | None
    """Bytes per second; None where the application had not more to send, or the kernel does not say."""
    receive_window: int | None
    """Bytes that the peer offers to have on their way; None where the kernel does not say."""


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
        told = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO_OPTION, _TCP_INFO.size)
    except OSError:  # closed, or no TCP
        return None
    size = len(told)
    if size < _TCP_INFO.size:
        if size < _LEAST_TCP_INFO_BYTES:  # another kernel's idea of the option
            return None
        told = told.ljust(_TCP_INFO.size, b"\0")
    flags, time_out_us, segment_bytes, in_flight, idle_ms, rtt_us, window, least_us, rate, offered = _TCP_INFO.unpack(
        told
    )
    if not rtt_us:
        return None
    return TcpInfo(
        rtt_us * 1_000,
        window,
        segment_bytes,
        time_out_us * 1_000,
        in_flight,
        idle_ms * 1_000_000,
        (least_us if 0 < least_us < rtt_us else rtt_us) * 1_000,
        None if flags & _APP_LIMITED or not rate else float(rate),
        offered if size >= _TCP_INFO.size else None,
    )


def starts_over_after_idle(sock: socket.socket) -> bool:
    """Whether the kernel halves a connection's congestion window for each time-out in which nothing was sent."""
    if _TCP_CONGESTION is not None:
        with contextlib.suppress(OSError):
            if sock.getsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, 16).startswith(_RULE_ALONE):
                return False
    return _slow_start_after_idle()


@cache
def _slow_start_after_idle() -> bool:
    try:
        return _SLOW_START_AFTER_IDLE.read_text().strip() != "0"
    except OSError:  # another system, or one that does not show it
        return True


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
