"""Whether a stream was buffered on its way: its events arrive in bursts, with pauses that users notice."""

from __future__ import annotations

from collections.abc import Sequence

LEAST_EVENTS = 20
"""A stream of fewer events can arrive in any shape by chance."""

BURST_NS_PER_EVENT = 100_000
"""10,000 events/s in one stream come from a buffer: several times what the fastest hosted models decode."""

_EVENTS_PER_BURST = 8
# A longer gap begins another burst.
_GAP_NS = 5_000_000
# Providers may send what they have some times a second, which looks like a stream all the same.
_PAUSE_NS = 250_000_000
# A whole answer at once, sooner than this after its request, is one that the provider had.
_WAIT_NS = 1_000_000_000

BUFFERING_ADVICE = (
    "Turn off buffering on the way: `proxy_buffering off` in nginx, or the response header `X-Accel-Buffering: no`; no "
    "compression of text/event-stream; no middleware that collects the body; on Azure, the asynchronous content filter."
)


def bursts_of(arrived_ns: Sequence[int], sent_ns: int | None) -> int | None:
    """Return the number of bursts in which the events of a stream came; None unless it was held back.

    `arrived_ns`: arrival of each event with output, in nanoseconds. `sent_ns`: when the request was sent, by the same
    clock. Held back is a stream of 20 events or more with 8 or more to a burst, faster than any model writes, if the
    median pause between bursts is 0.25 s or longer, or if all came at once 1 s or longer after the request.
    """
    count = len(arrived_ns)
    if count < LEAST_EVENTS:
        return None
    most_pauses, in_bursts_ns = count // _EVENTS_PER_BURST - 1, count * BURST_NS_PER_EVENT
    pauses: list[int] = []
    before_ns = arrived_ns[0]
    for now_ns in arrived_ns:  # a usual stream is one after an eighth of its events
        gap_ns = now_ns - before_ns
        before_ns = now_ns
        if gap_ns > _GAP_NS:
            pauses.append(gap_ns)
        else:
            in_bursts_ns -= gap_ns
        if len(pauses) > most_pauses or in_bursts_ns < 0:
            return None
    if pauses:
        return len(pauses) + 1 if sorted(pauses)[len(pauses) // 2] >= _PAUSE_NS else None
    return 1 if sent_ns is not None and arrived_ns[0] - sent_ns >= _WAIT_NS else None
