from __future__ import annotations

import json
import re
from pathlib import Path

from fastlane.traces import entries, page, read_spans
from tests.traces.recorded import recording


def parts(written: str) -> list[str]:
    return re.findall(r'<script type="application/json" id="\w+">(.*?)</script>', written, re.DOTALL)


def test_numbers_that_a_script_cannot_hold_are_text(tmp_path: Path) -> None:
    with recording(tmp_path / "spans.jsonl") as made:
        made.chat(0, 300, large=2**62, endless=float("inf"), words=["a", "b"])
    file = read_spans((tmp_path / "spans.jsonl").read_bytes(), "spans.jsonl")

    attributes = dict(json.loads(parts(page(file, entries(file.spans)))[1])["rows"][0]["a"])

    assert (attributes["large"], attributes["endless"], attributes["words"]) == (str(2**62), "inf", ["a", "b"])
