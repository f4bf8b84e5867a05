"""A call or a user action that is over, as metrics see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ..records.record import CallRecord
from ._experiment import Experiment


class Recorded(Protocol):
    """A call that is over."""

    def record(self) -> CallRecord:
        """Its record, made when it is first asked for."""


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call that is over, and what is known of it beside its record."""

    call: Recorded | CallRecord
    operation: str
    """`gen_ai.operation.name`: "chat", "text_completion" or "embeddings"."""
    provider: str
    """`gen_ai.provider.name`."""
    context: Any
    """OpenTelemetry's context with the call's span in it, for exemplars; None where there is no span."""
    experiment: Experiment | None
    counts_generic: bool
    """Whether `gen_ai.*` metrics are fastlane's to record: no other instrumentation records them for this call."""

    @property
    def record(self) -> CallRecord:
        """The call's record, which costs something where nobody has asked for it before."""
        return self.call if isinstance(self.call, CallRecord) else self.call.record()


@dataclass(frozen=True, slots=True)
class EndedAction:
    """A user action that is over."""

    name: str
    duration_s: float
    error: str | None
    """Class name of the error that ended it."""
    context: Any
    experiment: Experiment | None


class Unmade(Protocol):
    """A call whose spans are still to be made."""

    def made(self) -> EndedCall | None:
        """Make them, and say what there is to measure; None where nobody measures."""


Told = EndedCall | EndedAction | Unmade
