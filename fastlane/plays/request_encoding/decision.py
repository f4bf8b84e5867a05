"""Decide whether an encoded body is worth its CPU time."""

from __future__ import annotations

from dataclasses import dataclass

from fastlane.transport.protocols.upload import Path, rounds_and_upload_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether to send the encoded body, and why."""

    encode: bool
    reason: str
    """One sentence, without any text of the prompt."""
    plain_rounds: int
    """Predicted for the plain body."""
    encoded_rounds: int
    """Predicted for the encoded one."""
    saving_s: float
    """Predicted: how much sooner the encoded body would arrive, less the CPU time of encoding; below 0 where it would
    arrive later."""


def decide(*, plain_bytes: int, encoded_bytes: int, cpu_s: float, path: Path, min_bytes: int) -> Decision:
    """Decide between a body as it is and its encoded form.

    pays = (rounds(plain) - rounds(encoded)) x RTT + (plain - encoded) / uplink > CPU

    where both terms overlap, because a round waits while the link is busy: `upload_s()` of both takes that into
    account, and is exactly the first term where the link does not limit. Never encoded: a body below `min_bytes`, one
    that does not get smaller, and one whose CPU time outweighs what it saves. Source of the formula: `upload_s()`.
    """
    plain_rounds, plain_s = rounds_and_upload_s(plain_bytes, path)
    encoded_rounds, encoded_s = rounds_and_upload_s(encoded_bytes, path)
    saving_s = plain_s - encoded_s - cpu_s

    def decision(encode: bool, reason: str) -> Decision:
        return Decision(
            encode=encode,
            reason=reason,
            plain_rounds=plain_rounds,
            encoded_rounds=encoded_rounds,
            saving_s=saving_s,
        )

    if plain_bytes < min_bytes:
        return decision(False, f"A body of {plain_bytes:,} bytes is smaller than min_bytes ({min_bytes:,}).")
    if encoded_bytes >= plain_bytes:
        return decision(False, f"Encoded, the body would be no smaller ({encoded_bytes:,} bytes, not {plain_bytes:,}).")
    if not saving_s > 0:
        if plain_rounds == encoded_rounds and path.uplink_bytes_per_s is None:
            return decision(False, f"The body takes {_round_trips(plain_rounds)} either way.")
        return decision(
            False, f"Encoding takes {_ms(cpu_s)} of CPU time, and saves {_ms(saving_s + cpu_s)} on the way."
        )
    if encoded_rounds < plain_rounds:
        saved = f"{_round_trips(encoded_rounds)} of {_ms(path.round_trip_time_s)} instead of {plain_rounds}"
        return decision(True, f"{encoded_bytes:,} bytes instead of {plain_bytes:,} take {saved}.")
    return decision(
        True, f"{encoded_bytes:,} bytes instead of {plain_bytes:,} arrive {_ms(saving_s)} sooner on this uplink."
    )


def _round_trips(count: int) -> str:
    return "1 round trip" if count == 1 else f"{count} round trips"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
