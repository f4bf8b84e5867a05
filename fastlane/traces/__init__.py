"""Traces kept in files: read, put together into user actions and calls, and shown on one page."""

from ._entries import entries as entries
from ._model import TraceEntry as TraceEntry
from ._otlp import SpanFile as SpanFile, TraceFileError as TraceFileError, read_spans as read_spans
from ._page import page as page
