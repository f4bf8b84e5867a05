"""Inputs that show a defect: told apart by where they fail, made as small as may be, and kept with a command."""

from __future__ import annotations

import hashlib
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.guard import limited
from tests.fuzz.targets import Target

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".fuzz"
"""Where what is found is kept: corpora and failures. Nothing of it is committed."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One input, and what it shows."""

    data: bytes
    place: str
    """Where it failed: two inputs that fail there show the same defect."""
    told: str


def tried(target: Target, data: bytes) -> Failure | None:
    """What one input shows; None where all is as it has to be."""
    try:
        with limited():
            target.check(data)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        frames = traceback.extract_tb(error.__traceback__)
        last = frames[-1]
        what = str(error).split(": ", 1)[0] if isinstance(error, AssertionError) else ""
        # Of an assertion of ours, what it says; of anything else, the line.
        place = f"{type(error).__name__} {what or f'{Path(last.filename).name}:{last.lineno}'}"
        told = "".join(traceback.format_exception(error, limit=-8))
        return Failure(data, place, told)
    return None


def smallest(target: Target, failure: Failure, *, limit_s: float = 30.0) -> Failure:
    """A smaller input that fails at the same place: parts are left out, the larger ones first, as long as it does."""
    until = time.monotonic() + limit_s
    best = failure
    size = max(1, len(best.data) // 2)
    while size and time.monotonic() < until:
        at = 0
        while at < len(best.data) and time.monotonic() < until:
            found = tried(target, best.data[:at] + best.data[at + size :])
            if found is not None and found.place == best.place:
                best = found
            else:
                at += size
        size //= 2
    return best


def kept(target: Target, failure: Failure) -> Path:
    """Write an input down beside what it shows and the command that shows it again; return where."""
    folder = HOME / "failures" / target.name
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{hashlib.sha256(failure.data).hexdigest()[:12]}.bin"
    file.write_bytes(failure.data)
    command = f'make fuzz ARGS="--target {target.name} --input {file.relative_to(ROOT)}"'
    file.with_suffix(".txt").write_text(f"{command}\n\n{failure.place}\n\n{failure.data!r}\n\n{failure.told}")
    return file
