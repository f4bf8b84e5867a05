"""A socket whose kernel says of its connection what a test has it say."""

from __future__ import annotations

import ctypes
import socket
from typing import Any

# struct tcp_info after its first eight bytes (include/uapi/linux/tcp.h); in capitals what has 64 bits.
LAYOUT = """
    rto ato snd_mss rcv_mss unacked sacked lost retrans fackets last_data_sent last_ack_sent last_data_recv
    last_ack_recv pmtu rcv_ssthresh rtt rttvar snd_ssthresh snd_cwnd advmss reordering rcv_rtt rcv_space total_retrans
    PACING_RATE MAX_PACING_RATE BYTES_ACKED BYTES_RECEIVED segs_out segs_in notsent_bytes min_rtt data_segs_in
    data_segs_out DELIVERY_RATE BUSY_TIME RWND_LIMITED SNDBUF_LIMITED delivered delivered_ce BYTES_SENT BYTES_RETRANS
    dsack_dups reord_seen rcv_ooopack snd_wnd
"""
SIZES = (ctypes.c_uint32, ctypes.c_uint64)


class Info(ctypes.Structure):
    """As the kernel writes it: without gaps, each field where its size wants it to be anyway."""

    _fields_ = [
        ("before", ctypes.c_uint8 * 8),
        *((name.lower(), SIZES[name.isupper()]) for name in LAYOUT.split()),
    ]


USUAL = {
    "rto": 240_000,
    "snd_mss": 1_448,
    "unacked": 3,
    "last_data_sent": 7,
    "rtt": 40_000,
    "snd_cwnd": 25,
    "min_rtt": 39_000,
    "snd_wnd": 65_536,
}


class Told:
    """The socket. `asked`: how often for TCP_INFO."""

    def __init__(self, size: int, fields: dict[str, int]) -> None:
        self.size = size
        self.fields = fields
        self.asked = 0

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert level == socket.IPPROTO_TCP
        assert option == getattr(socket, "TCP_INFO", None)
        self.asked += 1
        return bytes(Info(**self.fields))[: min(self.size, size)]


def kernel(size: int = 232, **fields: int) -> Any:
    """A socket whose kernel's struct is so long, with these fields in its own units."""
    return Told(size, {**USUAL, **fields})
