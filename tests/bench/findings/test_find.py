"""What a recorded run shows: pairs by block, verdicts in words, and nothing that its records do not bear."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

from fastlane.bench import RecordedRun, Sample, find
from tests.bench.recorded_runs import S, a_cell, a_run, an_open_cell

FIRST = "time_to_first_token"


def comparison(recorded: RecordedRun, arm: str = "fastlane", metric: str = FIRST) -> Any:
    found = find(recorded).cells[0].comparison(arm, metric)
    assert found is not None
    return found


def by_key(sample: Sample) -> Any:
    return sample.key


def failing(arm: str, every: int) -> object:
    """What makes every n-th measured block of an arm fail."""

    def change(sample: Sample) -> Sample:
        if sample.arm == arm and sample.part == "measured" and sample.block % every == 0:
            return dataclasses.replace(
                sample, error="RateLimitError 429", token_ns=(), first_content_ns=None, finish_reason=None
            )
        return sample

    return change


class TestComparisons:
    @pytest.mark.parametrize(
        ("ratio", "metric", "expected", "kind", "sentence"),
        [
            (0.8, FIRST, 0.8, "better", "faster by 2"),
            (1 / 0.8, FIRST, 1.25, "worse", "slower by 2"),
            # More tokens a second are better.
            (0.8, "decode_speed", 1.25, "better", "faster by 2"),
        ],
    )
    def test_known_change_is_found_with_its_words(
        self, ratio: float, metric: str, expected: float, kind: str, sentence: str
    ) -> None:
        found = comparison(a_run(pairs=200, ratio=ratio, metrics=(metric,)), metric=metric)
        assert found.typical.low < expected < found.typical.high
        assert found.verdict.kind == kind
        assert found.verdict.sentence.startswith(sentence)

    def test_arms_that_are_alike_are_equivalent_once_that_is_shown(self) -> None:
        found = comparison(a_run(pairs=400, ratio=1.0, spread=0.05))
        assert found.verdict.kind == "equivalent"
        assert found.verdict.sentence.startswith("equivalent within 3 %, ")

    def test_inconclusive_verdict_gives_effect_and_pairs_needed(self) -> None:
        found = comparison(a_run(pairs=30, ratio=1.0, spread=0.3, seed=1))
        assert found.verdict.kind == "no difference shown"
        assert found.verdict.smallest_effect is not None
        assert found.verdict.smallest_effect > 0.05
        assert found.verdict.more_pairs is not None
        assert found.verdict.more_pairs > 1
        assert f"{found.verdict.more_pairs:,} more pairs needed to show" in found.verdict.sentence

    @pytest.mark.parametrize("pairs", [0, 1, 5])
    def test_few_pairs_are_no_verdict(self, pairs: int) -> None:
        found = comparison(a_run(pairs=pairs))
        assert (found.pairs, found.typical is None) == (pairs, pairs == 0)
        assert found.typical is None or found.typical.low is None
        # Three metrics are compared, and 6 pairs bound no interval at 1 - 5 % / 3.
        assert found.verdict.kind == "too few pairs"
        assert not pairs or found.verdict.more_pairs == 7 - pairs

    def test_metric_that_one_arm_never_gives_is_not_compared(self) -> None:
        found = comparison(a_run(pairs=20, metrics=("request_bytes",)), metric="request_bytes")
        assert found.verdict.kind == "not comparable"
        assert "fastlane or baseline" in found.verdict.sentence

    def test_p_values_match_scipy_with_copy_as_a_separate_family(self) -> None:
        arms = ("baseline", "baseline-again", "one", "two")
        recorded = a_run(arms=arms, pairs=40, ratio={"one": 0.97, "two": 1.0}, spread=0.1)
        logs = {
            arm: [math.log(each.api_end_to_end_s or 0) for each in sorted(recorded.measured(arm=arm), key=by_key)]
            for arm in arms
        }
        for arm, family in (("baseline-again", 3), ("one", 6)):
            found = comparison(recorded, arm, "api_end_to_end")
            changes = np.subtract(logs[arm], logs["baseline"])
            assert found.p_value == pytest.approx(stats.wilcoxon(changes, method="exact").pvalue)
            # The interval holds the changes that the test does not refuse, at 5 % for the family together.
            inside, outside = (
                stats.wilcoxon(changes - (math.log(found.typical.low) + shift), method="exact").pvalue
                for shift in (1e-6, -1e-6)
            )
            assert outside <= 0.05 / family < inside

    def test_pairs_are_made_within_a_block_of_a_cell(self) -> None:
        cells = (a_cell(4), a_cell(8))
        recorded = a_run(pairs=60, ratio=0.8, cells=cells)
        shuffled = dataclasses.replace(recorded, samples=recorded.samples[::-1])
        assert find(shuffled) == dataclasses.replace(find(recorded), cold=find(shuffled).cold)
        assert [cell.cell for cell in find(recorded).cells] == [cell.name for cell in cells]
        assert all(each.pairs == 60 for cell in find(recorded).cells for each in cell.comparisons)

    def test_blocks_that_were_interrupted_make_no_pairs(self) -> None:
        recorded = a_run(pairs=40)
        lost = {sample.tag for sample in recorded.measured(arm="fastlane")[:5]}
        kept = dataclasses.replace(recorded, samples=tuple(each for each in recorded.samples if each.tag not in lost))
        assert comparison(kept).pairs == 35

    def test_warm_up_is_excluded_and_cold_requests_are_reported(self) -> None:
        recorded = a_run(pairs=40)

        def absurd(sample: Sample) -> Sample:
            if sample.part == "measured":
                return sample
            return dataclasses.replace(sample, token_ns=tuple(stamp + 60 * S for stamp in sample.token_ns))

        shaken = dataclasses.replace(recorded, samples=tuple(map(absurd, recorded.samples)))
        assert find(shaken).cells == find(recorded).cells
        assert {each.arm for each in find(shaken).cold} == {"baseline", "baseline-again", "fastlane"}
        assert all((each.time_to_first_token_ms or 0) > 60_000 for each in find(shaken).cold)

    def test_cold_requests_are_given_beside_the_same_prompt_warm(self) -> None:
        recorded = a_run(pairs=40, ratio=0.8)

        def other(sample: Sample) -> Sample:
            if sample.part != "warm-up":
                return sample
            return dataclasses.replace(sample, conversation="another")

        warm = {sample.arm: sample.time_to_first_token_s for sample in recorded.samples if sample.part == "warm-up"}
        for each in find(recorded).cold:
            assert each.warm_time_to_first_token_ms == pytest.approx((warm[each.arm] or 0) * 1e3)
        shaken = dataclasses.replace(recorded, samples=tuple(map(other, recorded.samples)))
        assert {each.warm_time_to_first_token_ms for each in find(shaken).cold} == {None}

    def test_open_load_counts_from_the_schedule_s_moment(self) -> None:
        def late(sample: Sample) -> Sample:
            return dataclasses.replace(sample, issued_ns=sample.issued_ns + S // 10)

        plain, delayed = (
            a_run(pairs=20, cells=(an_open_cell(),), change=change) for change in (lambda each: each, late)
        )
        assert find(plain).cells[0].figures == find(delayed).cells[0].figures

    def test_same_seed_gives_the_same_findings(self) -> None:
        recorded = a_run(pairs=100)
        assert find(recorded, seed=1) == find(recorded, seed=1)
        assert find(recorded, seed=1) != find(recorded, seed=2)


class TestQuantiles:
    def test_quantiles_are_compared_only_with_enough_pairs(self) -> None:
        assert set(comparison(a_run(pairs=71)).quantiles) == {0.25, 0.5, 0.75, 0.9}
        found = comparison(a_run(pairs=72))
        assert set(found.quantiles) == {0.25, 0.5, 0.75, 0.9, 0.95}
        assert 0.7 < found.quantiles[0.5].value < 0.9

    def test_failed_requests_raise_quantiles_and_make_no_pair(self) -> None:
        sound = find(a_run(pairs=200, ratio=1.0)).cells[0]
        broken = find(a_run(pairs=200, ratio=1.0, change=failing("fastlane", 4))).cells[0]  # type: ignore[arg-type]
        before, after = sound.of("fastlane", FIRST), broken.of("fastlane", FIRST)
        assert before is not None
        assert after is not None
        assert (after.n, after.failed) == (200 - after.failed, broken.errors["fastlane"]["RateLimitError 429"])
        assert (after.quantiles[0.5].value or 0) > (before.quantiles[0.5].value or 0)
        assert after.quantiles[0.95].value is None
        assert after.quantiles[0.95].n == 200
        compared = broken.comparison("fastlane", FIRST)
        assert compared is not None
        assert compared.pairs == after.n
        assert compared.quantiles[0.5].value > 1.0
        assert 0.95 not in compared.quantiles

    def test_failed_request_is_no_larger_body(self) -> None:
        def with_body(sample: Sample) -> Sample:
            sample = failing("fastlane", 4)(sample)  # type: ignore[operator]
            return dataclasses.replace(sample, call={"attempts": [{"request_body_bytes": 1_000}]})

        found = find(a_run(pairs=100, change=with_body, metrics=("request_bytes",))).cells[0]
        figures = found.of("fastlane", "request_bytes")
        assert figures is not None
        assert figures.quantiles[0.95].value == 1_000

    def test_answer_that_broke_off_has_failed(self) -> None:
        def cut(sample: Sample) -> Sample:
            cut = sample.arm == "fastlane" and sample.block == 3
            return dataclasses.replace(sample, finish_reason=None) if cut else sample

        found = find(a_run(pairs=40, change=cut)).cells[0]
        assert found.errors == {"baseline": {}, "baseline-again": {}, "fastlane": {"answer broke off": 4}}

    def test_missing_finish_reasons_are_not_errors(self) -> None:
        found = find(a_run(pairs=40, change=lambda sample: dataclasses.replace(sample, finish_reason=None)))
        assert not any(found.cells[0].errors.values())


class TestFigures:
    def test_figures_cover_measured_requests_only(self) -> None:
        recorded = a_run(pairs=50)
        values = [(sample.time_to_first_token_s or 0) * 1e3 for sample in recorded.measured(arm="baseline")]
        figures = find(recorded).cells[0].of("baseline", FIRST)
        assert figures is not None
        assert (figures.n, figures.failed) == (50, 0)
        assert figures.mean == pytest.approx(sum(values) / 50)
        assert figures.deviation == pytest.approx(stats.tstd(values))
        assert (figures.minimum, figures.maximum) == (min(values), max(values))
        assert figures.quantiles[0.99].value is None
        assert figures.quantiles[0.99].wanted == 368

    def test_throughput_counts_busy_time_and_adds_shards(self) -> None:
        recorded = a_run(arms=("baseline",), pairs=20, cells=(a_cell(1),), spread=1e-9)
        # 0.2 s to the first of 32 tokens, 31 gaps of 10 ms, 1 ms to the end.
        expected = 32 / 0.511
        assert find(recorded).cells[0].throughput["baseline"] == pytest.approx(expected, rel=1e-6)
        twin = tuple(dataclasses.replace(each, shard=1, tag=f"{each.tag}'") for each in recorded.samples)
        both = dataclasses.replace(recorded, samples=recorded.samples + twin)
        assert find(both).cells[0].throughput["baseline"] == pytest.approx(2 * expected, rel=1e-6)
