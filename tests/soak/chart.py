"""Memory and descriptors over the run, as a picture or as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
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


def written(samples: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the chart: by the path's ending `.png`, `.svg`, or anything else for text.

    Each sample has the minute, whether every client was closed (`bare`), and what the process held.
    """
    if path.suffix not in (".png", ".svg"):
        path.write_text(as_text(samples))
        return
    import altair as alt  # the extra `charts`

    rows = [
        {"minute": sample["minute"], "value": value, "row": title,
         "clients": "all closed" if sample["bare"] else "some open"}
        for name, title in _ROWS
        for sample, value in zip(samples, _values(samples, name), strict=True)
    ]  # fmt: skip
    chart = (
        alt.Chart(alt.Data(values=rows))  # type: ignore[no-untyped-call]
        .mark_line(point=alt.OverlayMarkDef(size=8), strokeWidth=1)
        .encode(
            x=alt.X("minute:Q", title="minutes"),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=True)),
            color=alt.Color("clients:N", title="clients", scale=alt.Scale(range=["#3949ab", "#fb8c00"])),
        )
        .properties(width=640, height=110)
        .facet(row=alt.Row("row:N", title=None, sort=[title for _, title in _ROWS]))
        .resolve_scale(y="independent")
    )
    chart.save(str(path))


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
