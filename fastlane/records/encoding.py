"""What a call's record says of the form in which its body was sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .attempts import Form
from .section import RecordSection


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEncodingRecord(RecordSection):
    """In which form a call's body was sent, why, what that cost and what it saved by prediction."""

    name: ClassVar[str] = "request_encoding"

    form: Form
    """That of the attempt that gave the answer, or of the last."""
    reason: str
    """Why that form, in one sentence."""
    plain_bytes: int
    """Of the body as JSON."""
    sent_bytes: int
    """Of the body in `form`."""
    cpu_s: float = 0.0
    """CPU seconds of this thread for writing other forms than JSON, also where they were not sent in the end."""
    plain_rounds: int | None = None
    """Round trips that the JSON body would need to arrive, by the model of `docs/plays/request_encoding.md`."""
    sent_rounds: int | None = None
    """Round trips that the body as sent needs, by the same model; None where only JSON was considered."""
    round_trip_time_s: float | None = None
    """What the prediction was made with; an assumption where nothing was known of the connection."""
    congestion_window: int | None = None
    """Segments that could leave at once, as the prediction assumed."""
    predicted_saving_s: float = 0.0
    """Seconds by which the answer should come earlier, CPU taken off; 0 where the body went out as JSON."""
    probed: bool = False
    """Whether this call first found out whether the provider takes such bodies."""
    refused: str | None = None
    """What came of an encoded body that was not answered: a status ("415") or an error's class name."""
