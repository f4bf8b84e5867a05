"""Memory and descriptors over the run, as a chart of characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_ROWS = (
    ("resident", "resident memory, MiB"),
    ("allocated", "of the C library, MiB"),
    ("objects", "Python objects"),
    ("blocks", "blocks of memory in use"),
    ("descriptors", "file descriptors"),
    ("threads", "threads"),
)
_BYTES = ("resident", "allocated")


def _values(samples: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [sample[name] / 2**20 if name in _BYTES else float(sample[name]) for sample in samples]


def as_text(samples: Sequence[Mapping[str, Any]], width: int = 72) -> str:
    """Return a chart of characters: for each row its range, and its course from left to right."""
    blocks = "▁▂▃▄▅▆▇█"
    lines = []
    for name, title in _ROWS:
        values = _values(samples, name)
        step = max(1, -(-len(values) // width))
        shown = [max(values[at : at + step]) for at in range(0, len(values), step)]
        low, high = min(shown, default=0.0), max(shown, default=0.0)
        course = "".join(blocks[int((value - low) / ((high - low) or 1) * (len(blocks) - 1))] for value in shown)
        lines.append(f"{title:>22}  {low:8.1f} to {high:8.1f}  {course}")
    return "\n".join(lines) + "\n"
