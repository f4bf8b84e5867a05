"""The talk's case: a prompt of 123 kB over one warm HTTP/2 connection, as JSON by the stock client and encoded by ours.

The talk sent a code review of 123.4 kB in 2.0 kB of MessagePack and gzip, and had its first token after 0.43 s instead
of 0.63 s. Here both clients speak HTTP/2 over a wire of 67 ms to a provider that thinks for 363 ms and then takes
130 ms to answer, which leaves the same 0.63 s for the plain prompt. Two kinds of prompt: one that repeats its code, as
the talk's must have, and one of real source code. The clients take turns, in reversed order every other round, and
pause before each call, as an agent that runs a tool. Inside: from the application's call to the first content that it
reads; of the upload: from the request leaving the client, where the body is encoded, to its last byte read by the
provider, as its own log has it. Outside: opening the connections.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import fastlane
from benchmarks._encoding import BODY_BYTES, KINDS, Kind, plays, prompt
from benchmarks._paired import differences, median
from benchmarks._provider import providers
from benchmarks._report import Figure, Reach, Report
from benchmarks._transport import connections, first_content_ms, stock, wishes
from fastlane._clock import now_ns
from fastlane.emulator import ProviderModel, RequestLog

_ROUND_TRIP_TIME_S = 0.067
_THINKS_S = 0.363
_TOKENS = 26
_TOKEN_S = 0.005
_PAUSE_S = 0.5
_TALK_MS = (630.0, 430.0)
_SIDES = ("stock", "fastlane")


def _upload_ms(log: Sequence[RequestLog], sent_ns: Sequence[int]) -> float:
    arrived_ns = [request.body_complete_ns for request in log]
    return median(
        [(there - here) / 1e6 for here, there in zip(sent_ns, arrived_ns, strict=True) if there is not None]
    ).value


def _send_started_ns(client: fastlane.OpenAI) -> int:
    assert client.last_call is not None
    (attempt,) = client.last_call.attempts
    assert attempt.wire.send_started_ns is not None
    return attempt.wire.send_started_ns


def _figures(
    kind: Kind, log: Sequence[RequestLog], taken: Sequence[Sequence[float]], sent_ns: Sequence[Sequence[int]]
) -> dict[str, Figure]:
    sent = {side: [one for one in log if one.tag == f"{side}_{kind}"] for side in _SIDES}
    for side, encoding in (("stock", None), ("fastlane", "gzip")):
        if {request.content_encoding for request in sent[side]} != {encoding}:
            raise RuntimeError(f"{side} was to send its bodies with the encoding {encoding}")
        if {request.bytes_in_decoded for request in sent[side]} != {BODY_BYTES}:
            raise RuntimeError(f"{side} was to send {BODY_BYTES} bytes of JSON")
    uploads = {side: _upload_ms(sent[side], started) for side, started in zip(_SIDES, sent_ns, strict=True)}
    saved = median(differences(*taken))
    return {
        f"{kind}_json_ttft_ms": median(taken[0]).value,
        f"{kind}_encoded_ttft_ms": median(taken[1]).value,
        f"{kind}_saved_ms": saved.value,
        f"{kind}_saved_low_ms": saved.low,
        f"{kind}_saved_high_ms": saved.high,
        f"{kind}_json_upload_ms": uploads["stock"],
        f"{kind}_encoded_upload_ms": uploads["fastlane"],
        f"{kind}_upload_ratio": uploads["stock"] / uploads["fastlane"],
        f"{kind}_sent_bytes": sent["fastlane"][0].bytes_in,
    }


def measure(quick: bool) -> Report:
    """Measure both kinds of prompt, one after the other."""
    rounds = 6 if quick else 30
    figures: dict[str, Figure] = {}
    model = ProviderModel(prefill_base_s=_THINKS_S, inter_token_s=_TOKEN_S)
    text = " ".join(["yes"] * _TOKENS)
    with providers(1, round_trip_time_s=_ROUND_TRIP_TIME_S, model=model) as (emulator,):
        for kind in KINDS:
            messages = prompt(kind)
            own: dict[str, Any] = {
                "base_url": emulator.base_url,
                "api_key": "none",
                "max_retries": 0,
                "default_headers": wishes(tag=f"fastlane_{kind}"),
            }
            taken: list[list[float]] = [[], []]
            sent_ns: list[list[int]] = [[], []]
            with (
                stock(emulator.base_url, f"stock_{kind}") as theirs,
                fastlane.OpenAI(**own, only_plays=plays(encoding=True)) as ours,
            ):
                clients = (theirs, ours)
                for client in clients:  # opens the connection
                    first_content_ms(client, text, messages)
                emulator.clear()
                theirs._client.event_hooks = {"request": [lambda _, sent=sent_ns[0]: sent.append(now_ns())]}
                for round_number in range(rounds):
                    for index in (1, 0) if round_number % 2 else (0, 1):
                        time.sleep(_PAUSE_S)
                        taken[index].append(first_content_ms(clients[index], text, messages))
                        if index == 1:
                            sent_ns[1].append(_send_started_ns(ours))
            log = emulator.log()
            if {connections(log, f"{side}_{kind}") for side in _SIDES} != {1}:
                raise RuntimeError("each side was to have one warm connection")
            figures |= _figures(kind, log, taken, sent_ns)
    return Report(
        figures={
            **figures,
            "talk_of_json_ttft_ms": _TALK_MS[0],
            "talk_of_encoded_ttft_ms": _TALK_MS[1],
            "pairs": rounds,
        },
        reach=(
            Reach(figure="talk_saved_ms", op=">=", target=180),
            Reach(figure="talk_saved_ms", op="<=", target=220),
            Reach(figure="source_upload_ratio", op=">=", target=1.7),
        ),
        conditions={
            "round_trip_time_ms": 1e3 * _ROUND_TRIP_TIME_S,
            "provider_thinks_ms": 1e3 * _THINKS_S,
            "tokens": f"{_TOKENS} of {1e3 * _TOKEN_S:g} ms",
            "pause_s": _PAUSE_S,
            "body_bytes": BODY_BYTES,
            "expected": "talk: 1 round trip instead of 4, 201 ms; source: 2 instead of 4",
            "streamed": True,
            "tls": True,
        },
    )
