"""The results of the fault matrix as they are written into its page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults.judging import Verdict
from tests.faults.page import rendered
from tests.faults.table import Cell, applicable

ALIKE = "connect refused; DNS failure"


@pytest.fixture
def verdicts() -> dict[Cell, Verdict]:
    return {cell: Verdict(cell=cell, verdict="same", stock="answer", ours="answer") for cell in applicable()}


def row_of(fault: str, verdicts: dict[Cell, Verdict]) -> list[str]:
    rows = [line.strip("| ").split(" | ") for line in rendered(verdicts, 60.0) if line.startswith("|")]
    (row,) = (row for row in rows if fault in row[0].split("; "))
    return row


def test_faults_with_equal_results_share_a_row(verdicts: dict[Cell, Verdict]) -> None:
    slow = Cell("DNS failure", "sync", True, "HTTP/2", "all")
    verdicts[slow] = replace(verdicts[slow], seconds=2.5)

    faults, *rest = row_of("connect refused", verdicts)
    assert faults.startswith(ALIKE)
    assert rest == ["answer", "answer", "0", "2.5 of 30 s", "===", "==="]


def test_fault_with_another_result_has_its_own_row(verdicts: dict[Cell, Verdict]) -> None:
    broken = Cell("DNS failure", "async", True, "HTTP/2", "all")
    verdicts[broken] = replace(verdicts[broken], verdict="failed")

    assert "DNS failure" not in row_of("connect refused", verdicts)[0]
    assert row_of("DNS failure", verdicts)[-1] == "=== === === ==✗"


def test_differences_with_equal_reasons_share_a_row(verdicts: dict[Cell, Verdict]) -> None:
    for fault in ("connect refused", "DNS failure"):
        cell = Cell(fault, "sync", True, "HTTP/2", "all")
        verdicts[cell] = replace(verdicts[cell], verdict="better", ours="APITimeoutError", why="a deadline")

    lines = [line for line in rendered(verdicts, 60.0) if "a deadline" in line]
    assert lines == [
        "| DNS failure; connect refused | HTTP/2, sync, streamed, all plays | answer | APITimeoutError | a deadline |"
    ]


def test_resets_by_all_codes_are_one_name(verdicts: dict[Cell, Verdict]) -> None:
    row = row_of("RST by any of 14 codes, mid-stream", verdicts)

    assert "RST by any of 14 codes, before headers" in row[0]
    assert "NO_ERROR" not in row[0]
