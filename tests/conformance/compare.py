"""Compare two runs of openai's own test suite, and name what passes with stock openai only.

compare.py STOCK.xml OURS.xml [--only FILE] [--expected FILE] [--lost FILE]: junit files in, 1 out if anything is lost.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def outcomes(junit: Path) -> dict[str, str]:
    """pass, fail or skip of each test, by pytest's node id."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        # classname is "tests.lib.chat.test_x", or "tests.lib.chat.test_x.TestClass".
        parts = case.get("classname", "").split(".")
        module = next((index for index, part in enumerate(parts) if part.startswith("test_")), len(parts) - 1)
        node = "::".join(("/".join(parts[: module + 1]) + ".py", *parts[module + 1 :], case.get("name", "")))
        tags = {child.tag for child in case}
        found[node] = "fail" if tags & {"failure", "error"} else "skip" if "skipped" in tags else "pass"
    return found


def lines(file: Path) -> list[str]:
    """The lines of a list of tests, without comments."""
    return [line for line in file.read_text().splitlines() if line and not line.startswith("#")]


def lost(stock: dict[str, str], ours: dict[str, str], expected: list[str]) -> list[str]:
    """Tests that pass with stock openai and not with ours, without the expected ones."""
    return sorted(
        node
        for node, outcome in stock.items()
        if outcome == "pass"
        and ours.get(node) != "pass"
        and not any(fnmatch.fnmatchcase(node, pattern) for pattern in expected)
    )


def main() -> int:
    """Print the table and what is lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stock", type=Path)
    parser.add_argument("ours", type=Path)
    parser.add_argument("--only", type=Path, help="compare the tests listed in this file")
    parser.add_argument("--expected", type=Path, help="patterns of tests that may be lost")
    parser.add_argument("--lost", type=Path, help="write the lost tests into this file")
    options = parser.parse_args()

    stock, ours = outcomes(options.stock), outcomes(options.ours)
    if options.only:
        stock = {node: stock[node] for node in lines(options.only)}
    for name, run in (("stock", stock), ("ours", {node: ours[node] for node in stock if node in ours})):
        counts = Counter(run.values())
        print(f"{name:5}  passed {counts['pass']:5}  failed {counts['fail']:3}  skipped {counts['skip']:3}")
    missing = lost(stock, ours, lines(options.expected) if options.expected else [])
    print(f"pass with stock, not with ours: {len(missing)}")
    for node in missing:
        print(f"  LOST {node}: {ours.get(node, 'not run')}")
    if options.lost:
        options.lost.write_text("".join(f"{node}\n" for node in missing))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
