"""What the page on security names exists: each promise has code that keeps it, and a test that checks it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/security.md"


def rows() -> list[list[str]]:
    section = PAGE.read_text("utf-8").partition("## What is promised")[2].partition("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[2:]]


def missing(row: list[str]) -> list[str]:
    """What a row names and does not exist."""
    _, kept, checked = row
    paths = re.findall(r"`([^`]+)`", kept)
    tests = re.findall(r"`([^`]+)`", checked)
    found = [kept_path for kept_path in paths if not (ROOT / kept_path).is_file()]
    for test in tests:
        path, _, name = test.partition("::")
        if not (ROOT / path).is_file():
            found.append(test)
            continue
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        if name and name not in names:
            found.append(test)
    return [*found, *(["no place"] if not paths else []), *(["no test"] if not tests else [])]


@pytest.mark.parametrize("row", rows(), ids=lambda row: re.sub(r"\W+", " ", row[0])[:40].strip())
def test_every_promise_names_its_code_and_an_existing_test(row: list[str]) -> None:
    assert len(row) == 3
    assert missing(row) == []


def test_page_has_all_of_its_rows() -> None:
    assert len(rows()) > 15
