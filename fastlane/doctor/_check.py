"""Run a look at something so that its failure ends nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .._clock import now_ns
from ._findings import Group, ProviderFinding
from ._session import DoctorSession
from ._words import failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What looking at something takes of the provider, as estimated before it is asked for."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderCheck:
    """One thing to look at."""

    group: Group
    name: str
    look: Callable[[DoctorSession], Iterator[ProviderFinding]]
    """Yields what it has seen, one finding at a time, so that what comes before an error counts."""
    timeout_s: float
    cost: Cost = Cost()


class RunningCheck:
    """A check on a thread of its own, which is left behind when its time is up."""

    def __init__(self, check: ProviderCheck, session: DoctorSession) -> None:
        self._check = check
        self._found: list[ProviderFinding] = []
        self._over = threading.Event()
        self._started_ns = now_ns()
        self._thread = threading.Thread(target=self._run, args=(session,), name=f"doctor: {check.name}", daemon=True)
        self._thread.start()

    def _run(self, session: DoctorSession) -> None:
        try:
            for finding in self._check.look(session):
                self._found.append(finding)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong with one look, the others go on
            self._found.append(failure(self._check.group, self._check.name, error, session.settings.key_source))
        finally:
            self._over.set()

    def finish(self) -> tuple[ProviderFinding, ...]:
        """Wait until it is over or its time is up, and return what was seen. Ctrl-C gets through."""
        left_s = self._check.timeout_s - (now_ns() - self._started_ns) / 1e9
        over = self._over.wait(max(0.0, left_s))
        found = tuple(self._found)
        if over:
            return found
        late = ProviderFinding(
            group=self._check.group,
            looked_at=self._check.name,
            seen=f"not finished within {self._check.timeout_s:g} s",
            state="failed",
        )
        return (*found, late)


def run(check: ProviderCheck, session: DoctorSession) -> tuple[ProviderFinding, ...]:
    """Run a check and return what was seen, after its time at most."""
    return RunningCheck(check, session).finish()
