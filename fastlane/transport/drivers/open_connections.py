"""How many connections are open in this process, and how many of them carry a call."""

from __future__ import annotations

from typing import NamedTuple

from .engines import engines

_TRIES = 3


class OpenConnections(NamedTuple):
    """The open connections to one server."""

    host: str
    port: int
    active: int
    """Those that carry a call."""
    idle: int


def open_connections() -> list[OpenConnections]:
    """The connections of all pools at this moment, nearly: no pool is waited for, and each goes on meanwhile.

    Connections of the HTTP library's own, which carry what ours cannot, are not among them.
    """
    counted: dict[tuple[str, int], list[int]] = {}
    for engine in engines():
        for _ in range(_TRIES):
            try:
                found = [
                    # (What has left and was not looked at yet is over all the same.)
                    (member.origin, member.claimed > len(member.ended))
                    for member in engine.members()
                    if member.is_open and not member.is_closed
                ]
            except RuntimeError:  # one was opened or closed in the very moment
                continue
            for origin, is_active in found:
                count = counted.setdefault((origin.host, origin.port), [0, 0])
                count[0 if is_active else 1] += 1
            break
    return [OpenConnections(host, port, active, idle) for (host, port), (active, idle) in counted.items()]
