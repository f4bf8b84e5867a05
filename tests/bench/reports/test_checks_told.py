"""Checks in few words."""

from __future__ import annotations

from fastlane.bench.checks import CheckResult
from fastlane.bench.reports._checks_told import names_by_level, told


def flagged(arm: str, figure: float) -> CheckResult:
    sentence = f"{arm} opened a connection for {figure:g} of 95 requests"
    return CheckResult(check="new connections", level="flagged", sentence=sentence, cell="chat", arm=arm)


def test_what_arms_have_in_common_is_said_once_with_the_figures_of_the_first() -> None:
    [one] = told([flagged("connection", 95), flagged("encoding", 94), flagged("fastlane", 2.5)])
    assert one.text == (
        "chat, connection: connection opened a connection for 95 of 95 requests. Likewise encoding and fastlane"
    )


def test_other_sentences_and_other_levels_stand_alone() -> None:
    other = CheckResult(
        check="new connections", level="refused", sentence="another matter", cell="chat", arm="fastlane"
    )
    assert [each.likewise for each in told([flagged("encoding", 3), other])] == ["", ""]


def test_a_check_that_had_nothing_to_go_by_in_one_place_alone_passed() -> None:
    def of(check: str, level: str) -> CheckResult:
        return CheckResult(check=check, level=level, sentence="")  # type: ignore[arg-type]

    names = names_by_level(
        [of("a", "passed"), of("a", "not checked"), of("b", "not checked"), of("c", "flagged"), of("c", "passed")]
    )
    assert names == {"not checked": ("b",), "passed": ("a",)}
