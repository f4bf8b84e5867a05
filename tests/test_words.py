"""New text keeps to plain words: add a phrase and its replacement to `BANNED`.

Ordinary words such as way, place or said have plain uses too, and are left to the reviewer.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# A phrase, as a regular expression without regard to case, and what to write.
BANNED = {
    r"legs?": "attempt",
    r"journeys?": "request",
    r"(no|some)body": "name who: the caller, another thread, no call",
    r"whoever": "name who",
    r"lest": "so that … not",
    r"told|hears?|heard": "knows, gets, is passed",
    r"none where": "None if",
    r"raises \w+ where": "Raises … if",
    r"time-outs?": "timeout",
    r"(is|are|was|were) asked for": "requested",
    r"go(es)? without": "lacks, needs no",
    r"stands? behind": "follows",
    r"of one's own": "your own, separate",
    r"the application's own": "your",
    r"hitherto|thereof|therein|whence|thence|whereupon": "a plain sentence",
}
PATTERNS = {phrase: re.compile(rf"(?<![\w-])(?:{phrase})(?![\w-])", re.IGNORECASE) for phrase in BANNED}

EXCLUDED = {
    Path(__file__),  # It lists the phrases.
    ROOT / "scripts/servers.py",  # It names the Unix user `nobody`.
}

FILES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CHANGELOG.md")),
    *(path for tree in ("docs", "examples") for path in sorted((ROOT / tree).rglob("*.md"))),
    *(
        path
        for tree in ("fastlane", "examples", "tests", "benchmarks", "scripts")
        for path in sorted((ROOT / tree).rglob("*.py"))
        if path not in EXCLUDED
    ),
]


def findings(text: str) -> list[str]:
    """Return one line for each phrase that the text should not have, with what to write."""
    return [
        f"line {text.count(chr(10), 0, found.start()) + 1}: {found[0]!r}: write {BANNED[phrase]}"
        for phrase, pattern in PATTERNS.items()
        for found in pattern.finditer(text)
    ]


@pytest.mark.slow  # `make check` runs it
def test_text_keeps_to_plain_words() -> None:
    wrong = {str(path.relative_to(ROOT)): findings(path.read_text()) for path in FILES}
    assert {name: found for name, found in wrong.items() if found} == {}


@pytest.mark.parametrize(
    "text", ["None where it is off", "a time-out of 3 s", "Nobody waits", "the second leg", "so it is told"]
)
def test_banned_phrase_is_found(text: str) -> None:
    assert len(findings(f"Fine.\n{text}.")) == 1
