"""Traces kept in files: read, put together into user actions and calls, and shown on one page."""

from ._compare import ExperimentComparison as ExperimentComparison, compare as compare
from ._entries import entries as entries
from ._model import (
    CallPhase as CallPhase,
    Span as Span,
    TraceAttempt as TraceAttempt,
    TraceCall as TraceCall,
    TraceEntry as TraceEntry,
    WaterfallBar as WaterfallBar,
)
from ._otlp import SpanFile as SpanFile, TraceFileError as TraceFileError, read_spans as read_spans
from ._page import page as page

__all__ = [
    "CallPhase",
    "ExperimentComparison",
    "Span",
    "SpanFile",
    "TraceAttempt",
    "TraceCall",
    "TraceEntry",
    "TraceFileError",
    "WaterfallBar",
    "compare",
    "entries",
    "page",
    "read_spans",
]
