"""Traces kept in files: read, put together into user actions and calls, and shown on one page."""

from ._compare import Comparison as Comparison, compare as compare
from ._entries import entries as entries
from ._model import Attempt as Attempt, Call as Call, Entry as Entry, Phase as Phase, Row as Row
from ._otlp import SpanFile as SpanFile, TraceFileError as TraceFileError, read_spans as read_spans
from ._page import page as page
from ._spans import Span as Span

__all__ = [
    "Attempt",
    "Call",
    "Comparison",
    "Entry",
    "Phase",
    "Row",
    "Span",
    "SpanFile",
    "TraceFileError",
    "compare",
    "entries",
    "page",
    "read_spans",
]
