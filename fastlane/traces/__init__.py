"""Traces kept in files: read, put together into user actions and calls, and shown on one page."""

from ._compare import ExperimentComparison as ExperimentComparison, compare as compare
from ._entries import entries as entries
from ._model import (
    CallPhase as CallPhase,
    TracedAttempt as TracedAttempt,
    TracedCall as TracedCall,
    TraceEntry as TraceEntry,
    WaterfallBar as WaterfallBar,
)
from ._otlp import SpanFile as SpanFile, TraceFileError as TraceFileError, read_spans as read_spans
from ._page import page as page
from ._spans import Span as Span

__all__ = [
    "CallPhase",
    "ExperimentComparison",
    "Span",
    "SpanFile",
    "TraceEntry",
    "TraceFileError",
    "TracedAttempt",
    "TracedCall",
    "WaterfallBar",
    "compare",
    "entries",
    "page",
    "read_spans",
]
