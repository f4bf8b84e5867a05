"""Where the time of a request went, from what is on record of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...emulator import RequestLog
from ..recorded import Sample

TITLES: Final[Mapping[str, str]] = {
    "dispatch": "late dispatch",
    "prepare": "application, before sending",
    "retries": "earlier attempts",
    "queue": "queue",
    "dns": "DNS",
    "connect": "TCP connect",
    "tls": "TLS",
    "opening": "before the upload, not told apart",
    "send": "upload",
    "unsplit": "until the first token, not told apart",
    "server": "server, until the first token",
    "decode": "decode",
}
"""The parts of a request's time, in the order in which they pass; together they are the whole."""


def phases(sample: Sample, log: RequestLog | None = None, one_way_s: float = 0.0) -> dict[str, float]:
    """Return the seconds of each phase of a request that gave output, from its start to its last output.

    Until the first token they are split by the client's own record. Where the provider's log is there (on the same
    machine), the upload ends when the last byte had arrived, less the way: a client knows no more than when it gave
    the last byte to the kernel. Without a record the log alone tells the upload apart, and without both nothing does.
    {} without output.
    """
    if not sample.token_ns:
        return {}
    first, last = sample.token_ns[0], sample.token_ns[-1]
    walk = _Walk(sample.started_ns)
    walk.to("dispatch", sample.issued_ns)
    way_ns = round(one_way_s * 1e9)
    arrived = None if log is None or log.body_complete_ns is None else log.body_complete_ns - way_ns
    wire = _wire(sample)
    if wire is None and log is not None and arrived is not None:
        walk.to("opening", min(log.received_ns - way_ns, first))
        walk.to("send", min(arrived, first))
        walk.to("server", first)
    elif wire is None:
        walk.to("unsplit", first)
    else:
        attempts: list[Mapping[str, Any]] = list((sample.call or {}).get("attempts") or ())
        walk.to("prepare", min(attempts[0]["wire"]["started_ns"], first))
        walk.to("retries", min(wire["started_ns"], first))
        for name, start, end in (
            ("dns", "dns_started_ns", "dns_ended_ns"),
            ("connect", "connect_started_ns", "connect_ended_ns"),
            ("tls", "tls_started_ns", "tls_ended_ns"),
        ):
            walk.over(name, wire.get(start), wire.get(end), first)
        sent = wire.get("send_ended_ns")
        if arrived is not None and sent is not None and len(attempts) == 1:
            sent = max(sent, arrived)
        walk.over("send", wire.get("send_started_ns"), sent, first)
        walk.to("server", first)
    walk.to("decode", last)
    return {name: walk.spent[name] for name in TITLES if name in walk.spent}


def mean_phases(
    samples: Iterable[Sample], log: Iterable[RequestLog] | None = None, one_way_s: float = 0.0
) -> tuple[dict[str, float], int]:
    """Return the mean seconds of each phase over the requests that succeeded, and how many these were."""
    # A request that was tried again has several entries: the last one with a token is the answer.
    by_tag = {entry.tag: entry for entry in log or () if entry.tag is not None and entry.first_token_ns is not None}
    total: dict[str, float] = {}
    count = 0
    for sample in samples:
        found = phases(sample, by_tag.get(sample.tag), one_way_s) if sample.error is None else {}
        count += bool(found)
        for name, spent in found.items():
            total[name] = total.get(name, 0.0) + spent
    return {name: total[name] / count for name in TITLES if name in total}, count


def _wire(sample: Sample) -> Mapping[str, Any] | None:
    """Return the stamps of the attempt that gave the answer."""
    attempts = (sample.call or {}).get("attempts") or ()
    if not attempts:
        return None
    answered = [each for each in attempts if not each.get("given_up") and not each.get("error")] or attempts
    wire: Mapping[str, Any] = answered[-1]["wire"]
    return wire if wire.get("send_started_ns") is not None else None


class _Walk:
    """Goes through a request's moments in order, and never back: every nanosecond belongs to one phase."""

    def __init__(self, start_ns: int) -> None:
        self._at = start_ns
        self.spent: dict[str, float] = {}

    def to(self, name: str, end_ns: int) -> None:
        """Count what passed until `end_ns` for this phase."""
        if end_ns > self._at:
            self.spent[name] = self.spent.get(name, 0.0) + (end_ns - self._at) / 1e9
            self._at = end_ns

    def over(self, name: str, start_ns: int | None, end_ns: int | None, limit_ns: int) -> None:
        """Count this phase, and what passed before it as queue; nothing where it did not happen."""
        if start_ns is not None and end_ns is not None:
            self.to("queue", min(start_ns, limit_ns))
            self.to(name, min(end_ns, limit_ns))
