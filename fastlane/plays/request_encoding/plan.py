"""What the driver is told of the forms in which a call's body may be sent."""

from __future__ import annotations

from typing import NamedTuple

from fastlane.records.attempts import Form


class Encode(NamedTuple):
    """Other forms in which a call's body may be sent, where that pays."""

    forms: tuple[Form, ...]
    """The best first; without "json", which is always allowed."""
    known: bool
    """Whether the provider's facts say that it takes them; False where nobody knows."""
    probe: bool = False
    """Whether to find out what is not known, without a call of the application's."""
    min_bytes: int = 0
    """Bodies below this many bytes of JSON are sent as they are."""
    gzip_level: int = 1
    uplink_bytes_per_s: float | None = None
    """What the uplink carries; None: what the kernel has seen it carry, or no limit."""
    msgpack_type: str = "application/vnd.msgpack"
    """The content type of MessagePack."""
    binary_parts: tuple[str, ...] = ()
    """Paths in the body whose base64 text MessagePack may carry as bytes: "messages[].content[].input_audio.data"."""
    remember: str | None = None
    """A file in which to keep what was found out about providers; None for this process only."""
