"""What tests ask of checks' answers."""

from __future__ import annotations

from fastlane.bench.checks import Checked, CheckResult, Level


def about(found: Checked, check: str, arm: str | None = "fastlane") -> list[CheckResult]:
    """Return what one check says of one arm; of all arms together for None."""
    return [each for each in found.results if each.check == check and each.arm == arm]


def level(found: Checked, check: str, arm: str | None = "fastlane") -> Level:
    """Return the worst that one check says of one arm."""
    grades: tuple[Level, ...] = ("refused", "flagged", "passed", "not checked")
    levels = {each.level for each in about(found, check, arm)}
    return next(grade for grade in grades if grade in levels)
