"""`import fastlane.auto` calls `fastlane.install()`: from then on openai's classes make fastlane's clients."""

from __future__ import annotations

import os
import sys
from collections import deque

from ._clock import now_ns
from ._fork import in_child
from .client.install import install
from .records.record import CallRecord

_MOST_CALLS = 10_000
_ended: deque[CallRecord] = deque(maxlen=_MOST_CALLS)
in_child(_ended.clear)


def print_report(*, if_empty: bool) -> None:
    """Print to stderr where the time of this process's last 10,000 calls went; without calls only `if_empty`."""
    from .reports.report import report_of

    if _ended or if_empty:
        sys.stderr.write(f"fastlane run: process {os.getpid()}\n{report_of(tuple(_ended), now_ns=now_ns())}\n")


install(on_call_end=_ended.append if "FASTLANE_RUN_REPORT" in os.environ else None)
