"""What a preset is: a workload by name, with its source, its lengths and the load that goes with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ._lengths import TokenLengths

Kind = Literal["lengths", "code review", "airline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One setting of lengths."""

    name: str = ""
    """Empty where the preset has only one."""
    input: TokenLengths | None = None
    """Of prompts, in tokens; None for conversations, which grow."""
    output: TokenLengths | None = None
    """Of answers, in tokens; None for conversations, whose recorded answers say it."""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A workload by name. `preset` and `scenarios` make it."""

    name: str
    description: str
    source: str
    """Where its figures come from."""
    scenarios: tuple[Scenario, ...]
    users: tuple[int, ...]
    """Requests in flight that it is run with, one cell each."""
    kind: Kind = "lengths"
    caching_forbidden: bool = False
    """Whether all prompts are unique on purpose."""
    least_output: bool = False
    """Whether answers shorter than the least length are a fault of the run."""
    calls: int = 1
    """Requests of one conversation that follow each other."""
    requests: int = 10_000
    """Conversations that it has if not told otherwise; they cost nothing until they are used."""
    warm_up: int | None = None
    """Requests before those that count; None leaves it to the run."""
    runs: int | None = None
    """Requests that count; None leaves it to the run."""
    think_s: float | None = None
    """Pause between a user's requests; None leaves it to the run."""

    @property
    def max_output_tokens(self) -> int | None:
        """The most output tokens that any of its requests asks for; None for conversations."""
        most = [scenario.output.most for scenario in self.scenarios if scenario.output is not None]
        return max(most) if most else None
