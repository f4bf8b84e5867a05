"""Round trips that a prompt takes to the provider: those that `RequestEncoding` predicts against those that were seen.

Bodies of real source code, of 1 to 130 kB as JSON, each sent over an idle connection by a client without
`RequestEncoding`, and by one with it, to a provider that takes every form; then at once by the latter once more, over
windows that are still open. What is predicted stands in the record of the call. Inside, of what is seen: from the first
byte of the request handed to the socket, as the client stamps it, to its last byte read, as the provider's own log has
it. Half a round trip is the way of the last byte, and every further round trip one round more. Outside: opening the
connection, and the pauses, each long enough for the window to fall back to its beginning. Asynchronous, several lanes
with a provider each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import fastlane
from benchmarks._encoding import json_bytes, one_log, plays, prompt
from benchmarks._provider import providers
from benchmarks._report import Reach, Report
from benchmarks._transport import afirst_content_ms
from fastlane.emulator import Emulator

_ROUND_TRIP_TIME_S = 0.04
_ROUND_TRIP_NS = 40_000_000
# A window of 90 segments is halved four times, once for each round trip and 200 ms.
_PAUSE_S = 1.2
_LANES = 3
_SMALLEST_BYTES, _LARGEST_BYTES = 1_000, 130_000
_CASES = ("plain", "encoded", "again")


class _Seen(NamedTuple):
    """One request."""

    case: str
    body_bytes: int
    predicted: int
    observed: int
    form: str

    @property
    def held(self) -> bool:
        return self.predicted == self.observed


def _observed(client: fastlane.AsyncOpenAI, body_complete_ns: int) -> int:
    """Round trips that the last call's request took."""
    assert client.last_call is not None
    attempt = client.last_call.last_attempt
    if attempt is None or attempt.wire.send_started_ns is None or len(client.last_call.attempts) != 1:
        raise RuntimeError("a call was to be sent once, over fastlane's own transport")
    upload_ns = body_complete_ns - attempt.wire.send_started_ns
    return round((upload_ns - _ROUND_TRIP_NS / 2) / _ROUND_TRIP_NS) + 1


async def _ask(client: fastlane.AsyncOpenAI, emulator: Emulator, body_bytes: int) -> int:
    messages = prompt("source", body_bytes)
    with one_log(emulator) as read:
        await afirst_content_ms(client, messages=messages)
        request = read()
    if request.bytes_in_decoded != json_bytes(messages) or request.body_complete_ns is None:
        raise RuntimeError(f"{json_bytes(messages)} bytes were to arrive, and {request.bytes_in_decoded} did")
    return _observed(client, request.body_complete_ns)


async def _lane(emulator: Emulator, sizes: Sequence[int]) -> list[_Seen]:
    seen: list[_Seen] = []
    options = {"base_url": emulator.base_url, "api_key": "none", "max_retries": 0}
    async with (
        fastlane.AsyncOpenAI(**options, only_plays=plays(encoding=False)) as plain,  # type: ignore[arg-type]
        fastlane.AsyncOpenAI(**options, only_plays=plays(encoding=True, min_bytes=0)) as encoding,  # type: ignore[arg-type]
    ):
        for client in (plain, encoding):
            await _ask(client, emulator, _SMALLEST_BYTES)  # opens the connection, and brings the play's modules in
        for size in sizes:
            await asyncio.sleep(_PAUSE_S)
            plain_rounds = await _ask(plain, emulator, size)
            for case in ("encoded", "again"):
                observed = await _ask(encoding, emulator, size)
                assert encoding.last_call is not None
                record = encoding.last_call.request_encoding
                if record is None or record.sent_rounds is None or record.plain_rounds is None:
                    raise RuntimeError("the record does not say what was predicted")
                if case == "encoded":
                    seen.append(_Seen("plain", size, record.plain_rounds, plain_rounds, "json"))
                seen.append(_Seen(case, size, record.sent_rounds, observed, record.form))
    return seen


async def _lanes(emulators: Sequence[Emulator], sizes: Sequence[int]) -> Iterator[_Seen]:
    count = len(emulators)
    lanes = await asyncio.gather(*(_lane(one, sizes[number::count]) for number, one in enumerate(emulators)))
    return (seen for lane in lanes for seen in lane)


def measure(quick: bool) -> Report:
    """Measure sizes of equal distance."""
    step = 4_300 if quick else 1_000
    sizes = list(range(_SMALLEST_BYTES, _LARGEST_BYTES + 1, step))
    with providers(_LANES, round_trip_time_s=_ROUND_TRIP_TIME_S) as started:
        seen = list(asyncio.run(_lanes(started, sizes)))
    missed = [f"{one.case} {one.body_bytes}: {one.predicted}, seen {one.observed}" for one in seen if not one.held]
    encoded = [one for one in seen if one.case == "encoded" and one.form != "json"]
    small = [one for one in encoded if one.body_bytes < 11_000]
    return Report(
        figures={
            "predicted_share": sum(one.held for one in seen) / len(seen),
            **{
                f"{case}_predicted_share": sum(one.held for one in seen if one.case == case) / len(sizes)
                for case in _CASES
            },
            "sizes": len(sizes),
            "sent_encoded": len(encoded),
            "sent_encoded_below_11_kb": len(small),
            "most_rounds": max(one.observed for one in seen),
        },
        reach=(
            Reach(figure="predicted_share", op=">=", target=0.95),
            *(Reach(figure=f"{case}_predicted_share", op=">=", target=0.95) for case in _CASES),
            Reach(figure="sent_encoded_below_11_kb", op="==", target=0),
        ),
        conditions={
            "round_trip_time_ms": 1e3 * _ROUND_TRIP_TIME_S,
            "pause_s": _PAUSE_S,
            "bytes": f"{_SMALLEST_BYTES} to {_LARGEST_BYTES} in steps of {step}",
            "missed": missed,
            "lanes": _LANES,
            "tls": True,
        },
    )
