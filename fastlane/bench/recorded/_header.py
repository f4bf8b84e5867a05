"""What a run was: its arms, its cells, what it ran on; everything but the requests themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["reference", "again", "arm"]
"""What the others are compared with; its copy, whose interval is the instrument's own band; or one of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmInfo:
    """One arm of a run, as its records name it."""

    name: str
    description: str
    role: Role = "arm"
    reference: str | None = None
    """Name of the arm that it is compared with; None, as in runs of earlier versions: the run's first reference."""
    client: str = ""
    """Class of its client, such as "openai.AsyncOpenAI"."""
    plays: tuple[str, ...] | None = None
    """Fingerprints of its plays; None for a client that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One setting of workload and load; every cell has its own blocks, pairs and checks."""

    name: str
    """Unique in the run, such as "rag, 10 users"."""
    workload: str
    scenario: str | None = None
    """Which of several context lengths or presets, where the run has several."""
    load: Literal["closed", "open"] = "closed"
    users: int | None = None
    """Requests in flight under a closed load."""
    rate: float | None = None
    """Blocks intended per second under an open load; every arm sends once in each."""
    order: int = 0
    """Position in which the cell was run, drawn at random."""
    caching_forbidden: bool = False
    """Whether the workload's prompts are unique, so that nothing may be read from a cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Everything about a run but its raw records."""

    name: str
    provider: str
    """One line that says whom the requests went to."""
    model: str
    embedded: bool
    """Whether the provider was the embedded one, whose log is beside the records."""
    one_way_s: float = 0.0
    """The emulated wire's delay in one direction."""
    arms: tuple[ArmInfo, ...]
    cells: tuple[Cell, ...]
    metrics: tuple[str, ...]
    workload: str
    workload_source: str = ""
    """Where the workload comes from."""
    workload_notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Load, budget, seed and the like, as plain data."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """Python, system, cores, versions of packages."""
    started_at: str = ""
    """Wall-clock time of the start, ISO 8601 with its zone."""

    @property
    def references(self) -> tuple[ArmInfo, ...]:
        """The arms that others are compared with, one at least."""
        return tuple(arm for arm in self.arms if arm.role == "reference") or self.arms[:1]

    @property
    def copies(self) -> tuple[ArmInfo, ...]:
        """The references' copies, which take part for the instrument's own noise."""
        return tuple(arm for arm in self.arms if arm.role == "again")

    def reference_of(self, arm: str) -> ArmInfo:
        """Return the arm that an arm is compared with, by its name; a reference is its own."""
        found = next(each for each in self.arms if each.name == arm)
        if found in self.references:
            return found
        return next((each for each in self.references if each.name == found.reference), self.references[0])

    def again_of(self, arm: str) -> ArmInfo | None:
        """Return the copy of the reference that an arm is compared with; None for a run without one."""
        reference = self.reference_of(arm)
        return next((each for each in self.copies if self.reference_of(each.name) is reference), None)
