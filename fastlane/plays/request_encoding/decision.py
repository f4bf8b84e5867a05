"""Decide whether an encoded body is worth its CPU time."""

from __future__ import annotations

from typing import NamedTuple

from fastlane.transport.protocols.upload import Path, rounds_and_upload_s


class FormDecision(NamedTuple):
    """Whether to send the encoded body, and why."""

    encode: bool
    reason: str
    """One sentence, without any text of the prompt."""
    plain_rounds: int
    """Predicted for the plain body."""
    encoded_rounds: int
    """Predicted for the encoded one."""
    saving_s: float
    """Predicted: how much sooner the encoded body would arrive, less the CPU time of encoding."""


def decide(*, plain_bytes: int, encoded_bytes: int, cpu_s: float, path: Path, min_bytes: int) -> FormDecision:
    """Decide between a body as it is and its encoded form.

    pays = (rounds(plain) - rounds(encoded)) x RTT + (plain - encoded) / uplink > CPU

    where both terms overlap, because a round waits while the link is busy: `upload_s()` of both takes that into
    account, and is exactly the first term where the link does not limit. Never encoded: a body below `min_bytes`, one
    that does not get smaller, and one whose CPU time outweighs what it saves. Source of the formula: `upload_s()`.
    """
    plain_rounds, plain_s = rounds_and_upload_s(plain_bytes, path)
    encoded_rounds, encoded_s = rounds_and_upload_s(encoded_bytes, path)
    saving_s = plain_s - encoded_s - cpu_s
    sizes = f"{encoded_bytes:,} bytes instead of {plain_bytes:,}"
    encode = plain_bytes >= min_bytes and encoded_bytes < plain_bytes and saving_s > 0
    if plain_bytes < min_bytes:
        reason = f"A body of {plain_bytes:,} bytes is smaller than min_bytes ({min_bytes:,})."
    elif encoded_bytes >= plain_bytes:
        reason = f"Encoded, the body would be no smaller ({encoded_bytes:,} bytes, not {plain_bytes:,})."
    elif not encode and plain_rounds == encoded_rounds and path.uplink_bytes_per_s is None:
        reason = f"The body takes {_round_trips(plain_rounds)} either way."
    elif not encode:
        reason = f"Encoding takes {_ms(cpu_s)} of CPU time, and saves {_ms(saving_s + cpu_s)} on the way."
    elif encoded_rounds < plain_rounds:
        saved = f"{_round_trips(encoded_rounds)} of {_ms(path.round_trip_time_s)} instead of {plain_rounds}"
        reason = f"{sizes} take {saved}."
    else:
        reason = f"{sizes} arrive {_ms(saving_s)} sooner on this uplink."
    return FormDecision(encode, reason, plain_rounds, encoded_rounds, saving_s)


def _round_trips(count: int) -> str:
    return "1 round trip" if count == 1 else f"{count} round trips"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
