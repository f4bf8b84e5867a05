"""What holds for every page: it loads nothing, runs nothing but its own scripts, and takes what it shows for text."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastlane.errors import MissingExtraError
from fastlane.traces import entries, page as trace_page, read_spans
from tests.bench.recorded_runs import a_run, an_arm
from tests.bench.reports.made import bench, save
from tests.traces.recorded import recording

PRINTABLE = "</script><img src=x onerror=alert(1)>@@data@@"
NASTY = "</script><img src=x onerror=alert(1)>&quot;{{ style }}\u2028\ud800"


def a_bench_page(folder: Path) -> str:
    arms = ("baseline", "baseline-again", an_arm("fast", description="NASTY"), "NASTY")
    save(a_run(arms=arms, pairs=8, name="NASTY"), folder)
    for path in (folder / "run.json", folder / "records.jsonl", folder / "vitals.jsonl"):
        # UTF-8 has no half of a character, and JSON has.
        path.write_text(path.read_text().replace("NASTY", json.dumps(NASTY)[1:-1]))
    result = bench("report", folder, "-q", "-o", folder / "page.html")
    assert result.exit_code == 0, result.output
    return (folder / "page.html").read_text()


def a_trace_page(folder: Path) -> str:
    with recording(folder / "spans.jsonl") as made:
        attributes: dict[str, Any] = {PRINTABLE: PRINTABLE}
        chat = made.chat(0, 300, model=PRINTABLE, error=PRINTABLE, **attributes)
        made.span(PRINTABLE, 1, 2, parent=chat)
    file = read_spans((folder / "spans.jsonl").read_bytes(), NASTY)
    page = trace_page(file, entries(file.spans))
    (lines,) = re.findall(r'id="lines">(.*?)</script>', page, re.DOTALL)
    assert [PRINTABLE, PRINTABLE] in json.loads(lines)["rows"][0]["a"]
    return page


EVERY = pytest.mark.parametrize("write", [a_bench_page, a_trace_page])


@EVERY
def test_csp_allows_only_the_inline_scripts_and_style(write: Callable[[Path], str], tmp_path: Path) -> None:
    written = write(tmp_path)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="(.*?)"', written)
    scripts = re.findall(r"<script>(.*?)</script>", written, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", written, re.DOTALL)
    assert policy is not None

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert html.unescape(policy[1]) == (
        f"default-src 'none'; script-src {' '.join(map(digest, scripts))}; style-src {digest(style)}; base-uri 'none'; "
        "form-action 'none'"
    )
    assert not re.search(r"url\(|@import", style)


@EVERY
def test_record_text_is_escaped_in_pages(write: Callable[[Path], str], tmp_path: Path) -> None:
    written = write(tmp_path)

    without_scripts = re.sub(r"<script.*?</script>", "", written, flags=re.DOTALL)
    assert "<img" not in without_scripts
    assert "</script" not in without_scripts
    assert "<img src=x" not in written
    tags = " ".join(re.sub(r'"[^"]*"', '""', tag) for tag in re.findall(r"<[^>]+>", without_scripts))
    assert not re.search(r"\s(?:src|srcset|style|on\w+)=", tags)
    assert html.escape("</script><img src=x onerror=alert(1)>&quot;{{ style }}") in written


@EVERY
def test_page_is_smaller_than_1_5_megabytes(write: Callable[[Path], str], tmp_path: Path) -> None:
    assert len(write(tmp_path).encode()) < 1_500_000


@EVERY
def test_page_names_the_extra_that_it_lacks(
    write: Callable[[Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises((MissingExtraError, AssertionError), match=r"fastlane-llm\[(charts|cli)\]"):
        write(tmp_path)
