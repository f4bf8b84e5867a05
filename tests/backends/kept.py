"""A backend that was started and sent what an application does, and what it shows of that."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.backends._application import SECRET, Notes, read
from scripts.backends._servers import Backend, SeenSpan, SeenSpans
from scripts.environments import ROOT

_DRIVE_S = 180.0
_SETTLE_S = 30.0

MODEL_CALLS = frozenset({"LLM", "CHAT_MODEL"})
"""The kinds that backends take a call to a model for, each in its own word."""


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The application's environment: nothing of what this one says to exporters."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "FASTLANE_"))}
    return {**kept, **variables}


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """What one run of the application did, and what a backend shows of it."""

    notes: Notes
    spans: SeenSpans

    @property
    def model_calls(self) -> list[SeenSpan]:
        """What the backend takes for calls to a model, in the order of their starts."""
        return [span for span in self.spans if span.kind in MODEL_CALLS]

    def span(self, label: str) -> SeenSpan:
        """The span of a call that went otherwise than usual."""
        record = self.notes.labelled(label)
        return min(self.model_calls, key=lambda span: abs(span.start_ns - record.timeline.started_wall_ns))

    def named(self, span: SeenSpan, name: str) -> list[SeenSpan]:
        """Spans below whose names begin so."""
        return [below for below in self.spans.below(span) if below.name.startswith(name)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A backend, and what it was sent."""

    server: Backend
    project_id: str
    """The project or the experiment of `phases`."""
    phases: Driven
    """At the level that has a span for each part of a request."""
    call: Driven
    """At the level that has one span for each call."""
    files_with_a_secret: tuple[str, ...]
    """Of the backend's own: with a word of a prompt or an answer, a key, a header, or an address' query."""


def _drive(notes: Path, variables: Mapping[str, str], *arguments: str) -> Notes:
    command = [sys.executable, "-m", "scripts.backends", "application", str(notes), *arguments]
    subprocess.run(command, cwd=ROOT, env=environment(variables), timeout=_DRIVE_S, check=True)
    return read(notes)


def _settled(spans: Callable[[], SeenSpans], calls: int) -> SeenSpans:
    """What a backend shows once it has put away what it was sent."""
    until = time.monotonic() + _SETTLE_S
    before, seen = -1, spans()
    while time.monotonic() < until:
        found = sum(span.kind in MODEL_CALLS for span in seen)
        if found >= calls and len(seen) == before:
            break
        before = len(seen)
        time.sleep(0.5)
        seen = spans()
    return seen


def _files_with(directory: Path, text: str) -> tuple[str, ...]:
    files = sorted(file for file in directory.rglob("*") if file.is_file())
    return tuple(str(file.relative_to(directory)) for file in files if text.encode() in file.read_bytes())


def kept_by(server: Backend, directory: Path) -> Kept:
    def driven(name: str, level: str, *arguments: str, **variables: str) -> tuple[str, Driven]:
        project_id = server.project(name)
        variables_set = {**server.variables(project_id), "FASTLANE_TELEMETRY_LEVEL": level, **variables}
        notes = _drive(directory / name, variables_set, *arguments)
        return project_id, Driven(notes=notes, spans=_settled(lambda: server.spans(project_id), len(notes.calls)))

    project_id, phases = driven("airline-agent", "phases")
    _, call = driven("airline-agent-calls", "call", "--count", "2")
    return Kept(
        server=server,
        project_id=project_id,
        phases=phases,
        call=call,
        files_with_a_secret=_files_with(server.directory, SECRET),
    )
