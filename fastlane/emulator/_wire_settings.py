"""The settings of an emulated wire."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """What lies between a client and a server: how far apart they are, how wide the link is, how TCP fills it."""

    round_trip_time_s: float = 0.04
    # Per connection and per direction; None = the link itself never limits.
    rate_bits_per_s: float | None = None
    slow_start: bool = True
    # RFC 6928; what Linux, macOS and Windows use.
    initial_window_segments: int = 10
    # An Ethernet MTU of 1500 less the IPv4 and TCP headers and the timestamp option.
    segment_bytes: int = 1_448
    # Linux's default (net.ipv4.tcp_slow_start_after_idle=1): the client that waited for a model starts over.
    restart_after_idle: bool = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.round_trip_time_s) and 0 <= self.round_trip_time_s <= 60):
            raise ConfigurationError(
                f"round_trip_time_s must be between 0 and 60 seconds, got {self.round_trip_time_s!r}: "
                "40 milliseconds are written 0.04"
            )
        rate = self.rate_bits_per_s
        if rate is not None and not (math.isfinite(rate) and rate >= 1_000):
            raise ConfigurationError(
                f"rate_bits_per_s must be at least 1000 bits per second, got {rate!r}: "
                "20 Mbit/s are written 20e6, and None stands for a link without a limit"
            )
        if self.initial_window_segments < 1:
            raise ConfigurationError(
                f"initial_window_segments must be at least 1, got {self.initial_window_segments!r}: most hosts use 10"
            )
        if not 1 <= self.segment_bytes <= 65_535:
            raise ConfigurationError(
                f"segment_bytes must be between 1 and 65535, got {self.segment_bytes!r}: 1448 is usual on Ethernet"
            )
