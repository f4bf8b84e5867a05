"""A defect that is put into a reader is found by its seeds and a few inputs that are made of them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from fastlane.batch import answers
from fastlane.plays.rate_limits import headers
from fastlane.protocol import assembly, events as _events, json_scanner as _scanner
from fastlane.transport.protocols import h1 as _h1, h2 as _h2
from tests.fuzz.drawn import mutate
from tests.fuzz.targets import TARGETS
from tests.fuzz.test_targets import limited

Break = Callable[[pytest.MonkeyPatch], None]


def is_found(target: Any, tries: int = 1_500) -> bool:
    seeds, draw = target.seeds(), random.Random(0)
    for data in (*seeds, *(mutate(seeds, draw) for _ in range(tries))):
        try:
            with limited():
                target.check(data)
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            return True
    return False


def repeated_text(patch: pytest.MonkeyPatch) -> None:
    reset = _h2.Http2Connection._reset

    def twice(self: Any, stream: Any, code: Any) -> None:
        reset(self, stream, code)
        self.outgoing.append(self.outgoing[-1])

    patch.setattr(_h2.Http2Connection, "_reset", twice)


DEFECTS: dict[str, tuple[str, Break]] = {
    "the blank behind a field's name is kept": (
        "sse", lambda patch: patch.setattr(_events, "_value", lambda line, start: line[start:])),
    "a carriage return at a piece's edge is a line's end": (
        "sse", lambda patch: patch.setattr(_events, "_LINE_ENDS", re.compile(rb"\r|\n"))),
    "an event that was cut off is lost": (
        "stream", lambda patch: patch.setattr(_events.EventSplitter, "unended", lambda self: [])),
    "an escape is read as two characters": (
        "json", lambda patch: patch.setattr(_scanner, "_IN_STRING", re.compile('"').search)),
    "the text of an answer is lost": (
        "assembly", lambda patch: patch.setattr(assembly, "add_text", lambda into, name, _: into.setdefault(name, ""))),
    "a stream is reset twice": ("h2", repeated_text),
    "a window may be overdrawn": (
        "h2", lambda patch: patch.setattr(_h2.Http2Connection, "_data", lambda *_: None)),
    "a size may end with a line feed": (
        "h1", lambda patch: patch.setattr(_h1, "SIZE_LINE", re.compile(rb"([0-9A-Fa-f]{1,8})\r?\n"))),
    "a reset may be years away": ("rate_limits", lambda patch: patch.setattr(headers, "_MAX_RESET_S", 1e12)),
    "an answer is kept as nothing": ("batch", lambda patch: patch.setattr(answers, "_json", lambda _: b"{}")),
}  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.slow
def test_planted_defect_is_found_by_its_oracle(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, put = DEFECTS[defect]
    put(monkeypatch)

    assert is_found(TARGETS[name])
