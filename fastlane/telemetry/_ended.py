"""A call that is over, as metrics see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._call import CallRecord
from ._experiment import Experiment


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call that is over, and what is known of it beside its record."""

    record: CallRecord
    operation: str
    """`gen_ai.operation.name`: "chat", "text_completion" or "embeddings"."""
    provider: str
    """`gen_ai.provider.name`."""
    context: Any
    """OpenTelemetry's context with the call's span in it, for exemplars; None where there is no span."""
    experiment: Experiment | None
    counts_generic: bool
    """Whether `gen_ai.*` metrics are fastlane's to record: no other instrumentation records them for this call."""


@dataclass(frozen=True, slots=True)
class EndedAction:
    """A user action that is over."""

    name: str
    duration_s: float
    error: str | None
    """Class name of the error that ended it."""
    context: Any
    experiment: Experiment | None


Told = EndedCall | EndedAction

Attributes = Mapping[str, Any]
