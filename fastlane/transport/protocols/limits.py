"""Limits of an HTTP/2 connection: what it grants its peer, and when it counts frames as a flood."""

from __future__ import annotations

FRAME_BYTES = 16_384
"""The largest frame that we take: SETTINGS_MAX_FRAME_SIZE as it is without a word of ours (RFC 9113, 6.5.2)."""

STREAM_WINDOW = 4 * 1024 * 1024
"""Bytes of one answer that nobody has read yet: 40 ms at 840 Mbit/s, and the memory that one slow reader can cost."""

CONNECTION_WINDOW = 64 * 1024 * 1024
"""Bytes on their way to us. What arrives is credited at once, so that a slow reader holds up no other."""

HEADER_LIST_BYTES = 64 * 1024
"""The largest head, unpacked and with 32 bytes for each field (RFC 9113, 6.5.2). Node and h2 take as much."""

HEADER_BLOCK_BYTES = 64 * 1024
"""The largest head as it is packed: no encoder makes it larger than it was."""

HEADER_TABLE_BYTES = 4_096
"""What our encoder remembers at most, whatever the peer offers: HPACK's default (RFC 7541, and RFC 9113, 6.5.2)."""

ASSUMED_STREAMS = 100
"""Exchanges at once before the peer has said what it allows: the least that it should allow (RFC 9113, 6.5.2)."""

ROUND_TRIPS = 8
"""Measured round trips that are remembered, the smallest of which counts: a few minutes of pings."""

HIGHEST_STREAM_ID = 2**31 - 1

# What a side may send before it is told otherwise, and what it may be allowed at most (RFC 9113, 6.9).
FIRST_WINDOW = 65_535
LARGEST_WINDOW = 2**31 - 1

CONTROL_FRAMES = 1_000
"""Frames that carry nothing which may come unasked within `CONTROL_NS`: a polite server sends a few in a minute."""

CONTROL_NS = 10_000_000_000

EARNED_FRAMES = 100_000
"""What may be earned at most, so that a long upload is no licence for a flood."""

FRAMES_PER_FRAME = 4
"""Answered to one frame of ours: two WINDOW_UPDATE, one PING to measure the bandwidth, one RST_STREAM that crossed."""

BYTES_PER_FRAME = 1_024
"""A server that credits an upload in steps as small as this still passes; Go's takes 4 KiB, nghttp2 half a window."""

UNSENT_CONTROL_BYTES = 1024 * 1024
"""Acknowledgements that the peer makes us queue while it does not read them."""


class ControlFrames:
    """Counts the frames that carry nothing: those that what we sent may have caused, and those that came unasked."""

    __slots__ = ("_earned", "_since_ns", "_unasked")

    def __init__(self) -> None:
        self._earned = 0
        self._since_ns = 0
        self._unasked = 0

    def sent(self, frames: int, body_bytes: int = 0) -> None:
        """Note frames of ours that the peer may answer."""
        earned = frames * FRAMES_PER_FRAME + body_bytes // BYTES_PER_FRAME
        self._earned = min(self._earned + earned, EARNED_FRAMES)

    def flood(self, now_ns: int) -> bool:
        """Count one more control frame; return whether it is one too many."""
        if self._earned:
            self._earned -= 1
            return False
        if now_ns - self._since_ns > CONTROL_NS:
            self._since_ns = now_ns
            self._unasked = 0
        self._unasked += 1
        return self._unasked > CONTROL_FRAMES
