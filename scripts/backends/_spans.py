"""Spans as a backend gives them back, in one form for all backends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSpan:
    """One span as a backend shows it."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: str
    """What the backend takes it for, in its own word: "LLM", "CHAIN", "UNKNOWN"."""
    failed: bool
    start_ns: int
    """Nanoseconds since the epoch, as exact as the backend keeps them."""
    end_ns: int
    attributes: Mapping[str, Any]
    """In the backend's own names where it has some."""
    tokens: Mapping[str, int]
    """What the backend counts of the prompt ("input", "cache_read", "cache_write") and of the answer ("output")."""
    model: str | None = None
    """What it takes for the model."""
    link_reasons: tuple[str, ...] = ()
    """`fastlane.link.reason` of the span's links."""

    @property
    def duration_s(self) -> float:
        """Seconds."""
        return (self.end_ns - self.start_ns) / 1e9


class SeenSpans:
    """All spans of a project, and who is below whom."""

    def __init__(self, spans: Iterable[SeenSpan]) -> None:
        self.all = sorted(spans, key=lambda span: (span.start_ns, span.end_ns))
        self._by_id = {span.span_id: span for span in self.all}
        self._children: dict[str, list[SeenSpan]] = {}
        for span in self.all:
            if span.parent_id is not None:
                self._children.setdefault(span.parent_id, []).append(span)

    def __iter__(self) -> Iterator[SeenSpan]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def roots(self) -> list[SeenSpan]:
        """Spans without a parent."""
        return [span for span in self.all if span.parent_id is None]

    @property
    def orphans(self) -> list[SeenSpan]:
        """Spans whose parent the backend does not have."""
        return [span for span in self.all if span.parent_id is not None and span.parent_id not in self._by_id]

    def parent(self, span: SeenSpan) -> SeenSpan | None:
        """The span above; None for a root."""
        return None if span.parent_id is None else self._by_id[span.parent_id]

    def children(self, span: SeenSpan) -> list[SeenSpan]:
        """The spans right below, in the order of their starts."""
        return self._children.get(span.span_id, [])

    def below(self, span: SeenSpan) -> list[SeenSpan]:
        """All spans below, whatever is between."""
        found = []
        for child in self.children(span):
            found += [child, *self.below(child)]
        return found
