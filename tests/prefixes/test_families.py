from __future__ import annotations

from fastlane.plays.prompt_cache.prefixes._families import Families
from fastlane.plays.prompt_cache.prefixes._lines import Attributes
from fastlane.records.prompt import Drift, PromptCacheRecord

CALLS = 700


def counted(models: int) -> Families:
    """A call of each of so many families, the most costly drift first."""
    families = Families()
    for number in range(CALLS):
        attributes = Attributes("https://api.example.com:443", "/chat/completions", f"model {number % models}", ())
        drift = Drift(kind="uuid", path=f"messages[{number}].content", tokens_lost=CALLS - number)
        record = PromptCacheRecord(
            family=f"family {number}",
            prompt_tokens=2_000,
            reusable_tokens=1_500,
            expected_tokens=1_408,
            cached_tokens=None if number % 2 else 1_280,
            drift=drift,
        )
        families.count(f"family {number}", number, attributes, None, record)
    return families


def test_families_that_are_forgotten_are_one_row_for_each_model_and_lose_no_count() -> None:
    report = counted(models=3).report()

    assert len(report.families) == 256 + 3
    others = [family for family in report.families if family.family == "others"]
    assert {family.model for family in others} == {"model 0", "model 1", "model 2"}
    assert sum(family.calls for family in others) == CALLS - 256
    assert (report.calls, report.said_calls) == (CALLS, CALLS // 2)
    assert (report.prompt_tokens, report.expected_tokens) == (CALLS * 2_000, CALLS * 1_408)
    # Of half the calls nobody said what was read: what is compared is of the other half.
    assert report.said_expected_tokens == CALLS // 2 * 1_408
    expected, read = (
        sum(metric.value for metric in report.metrics() if metric.name == f"fastlane.client.cache.{name}_tokens")
        for name in ("expected", "read")
    )
    assert read / expected == 1_280 / 1_408
    assert report.cached_tokens == CALLS // 2 * 1_280
    assert report.hit_ratio == 1_280 / 2_000
    (drift,) = report.drifts
    assert (drift.calls, drift.tokens_lost) == (CALLS, CALLS * (CALLS + 1) // 2)
    assert drift.path == "messages[0].content"


def test_rows_and_labels_are_bounded_however_many_models_there_are() -> None:
    report = counted(models=CALLS).report()

    assert len(report.families) <= 256 + 65
    assert report.calls == CALLS
    of_others = [family for family in report.families if family.model == "others"]
    assert [family.calls for family in of_others] == [CALLS - 256 - 64]
    assert len({metric.attributes["gen_ai.request.model"] for metric in report.metrics()}) <= 256 + 65


def test_a_beginning_keeps_the_name_of_the_family_that_it_was_counted_for() -> None:
    families = counted(models=1)

    assert families.named(CALLS - 1) == f"family {CALLS - 1}"
    assert families.named(-1) == "f" * 16
