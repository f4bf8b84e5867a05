"""Whether spans say what was true: their durations against the provider's own log and the known delays of the wire.

Eight kinds of streamed calls over TLS and HTTP/2 and a wire of 40 ms: `cold` (a new connection, a name to look up),
`warm`, `retry` (a 429, then an answer), `hedge` (a first attempt that hangs, and a second on a connection of its own),
`slow_upload` (600 kB where the provider takes 64 KiB at once), `slow_prefill` (headers at once, the first token half a
second later), `slow_decode` (60 ms a token) and `slow_consumer` (the application takes 30 ms for each chunk that comes
every 10 ms). Half of them are made by the asynchronous client and half by the synchronous one. Spans are exported by
OpenTelemetry's SDK at the level `phases`.

Inside: what the client can see. All stamps are of one clock, so that what happened at the provider happened for the
client a way of the wire earlier or later: both ways, and a TLS handshake, are measured with bare sockets in the same
run (`wire_up_ms`, `wire_down_ms`, `handshake_ms`). What each span is compared with:

- chat: the application's own clock around the call, and where it begins (`chat starts`) the wall clock
- prepare: from there until the request's head, which came a way later, was sent; or until the resolver was asked
- POST: from the request's head (and the opening of a connection) to the end of the answer, or to the provider's seeing
  that it was given up
- HTTP wait_for_connection: where it ends with when the resolver was asked. How long it was is for the client alone to
  say: it is taken off POST and off the time until the resolver was asked, before these are compared
- DNS lookup: what the resolver took; socket connect: nothing, since the wire accepts at once; TLS client handshake: a
  bare one
- HTTP send_request: from the head to the end of the body at the provider. The window is smaller than what a round trip
  carries, so that it is true of what was handed to the kernel as well
- HTTP wait_for_response: from the end of the body to the head of the answer, and both ways
- first_token and decode: from the head to the first token, and to the last, as they left the provider. What the
  application does meanwhile is no part of them

Attributes of the call's span are compared in the same way (`attributes`), and counts of tokens, bytes and attempts must
be equal (`wrong_counts`). Outside: what a process does once, which is a first call of each kind.

The bar is 2 ms and 3 % of the truth for each phase. On a busy machine either side comes late now and then: an error
is the largest median over all repetitions among a case's spans, as a share of what is allowed (`_error_ratio`); its
95th percentile and the share of all spans that keep within what is allowed stand beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks._paired import median
from benchmarks._report import Figure, Reach, Report, main
from benchmarks._transport import percentile
from benchmarks._truth_cases import CASES, ROUND_TRIP_TIME_S, WINDOW_BYTES, told
from benchmarks._truth_compared import Compared, attributes_compared, counts, spans_compared


def _by_what(compared: Sequence[Compared]) -> dict[str, list[Compared]]:
    found: dict[str, list[Compared]] = {}
    for one in compared:
        found.setdefault(one.what, []).append(one)
    return found


def _share_within(compared: Sequence[Compared]) -> float:
    return sum(one.of_allowed <= 1 for one in compared) / len(compared)


def _of_case(name: str, compared: Sequence[Compared]) -> dict[str, Figure]:
    phases = _by_what(compared)
    worst = max(phases.values(), key=lambda ones: median([one.of_allowed for one in ones]).value)
    shares = [one.of_allowed for one in worst]
    return {
        f"{name}_error_ratio": median(shares).value,
        f"{name}_error_p95_ratio": percentile([one.of_allowed for one in compared], 0.95),
        f"{name}_within_share": _share_within(compared),
        f"{name}_worst_ms": max(one.error_ms for one in compared),
    }


def _of_phase(compared: Sequence[Compared]) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for what, ones in sorted(_by_what(compared).items()):
        name = what.removeprefix("fastlane.").lower().replace(" ", "_").replace(".", "_")
        errors = [one.error_ms for one in ones]
        figures[f"{name}_error_p50_ms"] = percentile(errors, 0.5)
        figures[f"{name}_error_p95_ms"] = percentile(errors, 0.95)
    return figures


def measure(quick: bool) -> Report:
    """Make calls of all kinds in turn, and compare what was told of them."""
    repetitions = 2 if quick else 8
    every, delays = told(repetitions)
    # Where the machine has made many answers late, none is hedged.
    calls = [call for call in every if call.case != "hedge" or len(call.log) > 1]
    spans = [one for call in calls for one in spans_compared(call, delays)]
    attributes = [one for call in calls for one in attributes_compared(call, delays)]
    figures: dict[str, Figure] = {"phases_within_share": _share_within(spans)}
    for case in CASES:
        figures |= _of_case(case.name, [one for one in spans if one.case == case.name])
    figures |= _of_phase(spans)
    figures |= {
        "attributes_within_share": _share_within(attributes),
        "attributes_error_p95_ratio": percentile([one.of_allowed for one in attributes], 0.95),
        **{f"attributes_{name}": value for name, value in _of_phase(attributes).items() if "p50" in name},
        "wrong_counts": sum(one.seen != one.true for call in calls for one in counts(call)),
        "spans_compared": len(spans),
        "not_hedged": len(every) - len(calls),
        "wire_up_ms": delays.up,
        "wire_down_ms": delays.down,
        "handshake_ms": delays.handshake,
    }
    return Report(
        figures=figures,
        reach=(
            *(Reach(figure=f"{case.name}_error_ratio", op="<=", target=1) for case in CASES),
            Reach(figure="phases_within_share", op=">=", target=1),
            Reach(figure="wrong_counts", op="==", target=0),
        ),
        conditions={
            "calls_of_each_kind": 2 * repetitions,
            "round_trip_time_ms": 1e3 * ROUND_TRIP_TIME_S,
            "allowed": "2 ms and 3 %",
            "window_bytes": WINDOW_BYTES,
            "streamed": True,
            "tls": True,
        },
    )


if __name__ == "__main__":
    main("telemetry_truth", __doc__, measure)
