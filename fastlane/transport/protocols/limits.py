"""Limits of an HTTP/2 connection: what it grants its peer, and when it counts frames as a flood."""

from __future__ import annotations

FRAME_BYTES = 16_384
"""The largest frame that we take: SETTINGS_MAX_FRAME_SIZE as it is without a word of ours (RFC 9113, 6.5.2)."""

STREAM_WINDOW = 4 * 1024 * 1024
"""Bytes of one answer that were not read yet: 40 ms at 840 Mbit/s, and the memory that one slow reader can cost."""

CONNECTION_WINDOW = 64 * 1024 * 1024
"""Bytes on their way to us. What arrives is credited at once, so that a slow reader holds up no other."""

HEADER_LIST_BYTES = 64 * 1024
"""The largest head, unpacked and with 32 bytes for each field (RFC 9113, 6.5.2). Node and h2 take as much."""

HEADER_BLOCK_BYTES = 64 * 1024
"""The largest head as it is packed: no encoder makes it larger than it was."""

ASSUMED_STREAMS = 100
"""Exchanges at once before the peer has said what it allows: the least that it should allow (RFC 9113, 6.5.2)."""

ROUND_TRIPS = 8
"""Measured round trips that are remembered, the smallest of which counts: a few minutes of pings."""

HIGHEST_STREAM_ID = 2**31 - 1

# What a side may send before the peer sets another limit, and what it may be allowed at most (RFC 9113, 6.9).
FIRST_WINDOW = 65_535
LARGEST_WINDOW = 2**31 - 1

CONTROL_FRAMES = 10_000
"""Frames that carry nothing, in a row: without a head or data of an answer, or a frame of a request, in between."""
