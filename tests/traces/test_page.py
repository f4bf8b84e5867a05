from __future__ import annotations

import json
import re
from pathlib import Path

from fastlane.traces import entries, page, read_spans
from tests.traces.recorded import everyday, recording


def parts(written: str) -> list[str]:
    return re.findall(r'<script type="application/json" id="\w+">(.*?)</script>', written, re.DOTALL)


def test_page_data_has_one_line_per_entry(tmp_path: Path) -> None:
    file = read_spans(everyday(tmp_path / "spans.jsonl").read_bytes(), "spans.jsonl")
    found = entries(file.spans)

    data, lines = parts(page(file, found))

    assert len(json.loads(data)["entries"]) == len(found) == len(lines.split("\n"))
    assert [json.loads(line)["trace"] for line in lines.split("\n")] == [entry.trace_id for entry in found]


def test_numbers_that_a_script_cannot_hold_are_text(tmp_path: Path) -> None:
    with recording(tmp_path / "spans.jsonl") as made:
        made.chat(0, 300, large=2**62, endless=float("inf"), words=["a", "b"])
    file = read_spans((tmp_path / "spans.jsonl").read_bytes(), "spans.jsonl")

    attributes = dict(json.loads(parts(page(file, entries(file.spans)))[1])["rows"][0]["a"])

    assert (attributes["large"], attributes["endless"], attributes["words"]) == (str(2**62), "inf", ["a", "b"])
