from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given, strategies as st

from fastlane.bench import RecordedRun, Sample, check
from tests.bench.recorded_runs import MS, a_cell, a_run, an_open_cell, changed, with_vitals

RUNS = st.builds(
    a_run,
    cells=st.sampled_from([(a_cell(1),), (a_cell(4), a_cell(8)), (an_open_cell(5.0),)]),
    pairs=st.integers(16, 40),
    ratio=st.floats(0.5, 2.0),
    seed=st.integers(0, 1_000),
    time_to_first_token_s=st.floats(0.1, 2.0),
    inter_token_s=st.floats(0.001, 0.1),
    tokens=st.integers(2, 100),
    spread=st.floats(0.0, 0.3),
    with_log=st.booleans(),
)


@given(RUNS)
def test_sound_run_is_never_refused(run: RecordedRun) -> None:
    found = check(run)

    assert found.refusals() == ()
    assert not any(found.refusals(cell.name) for cell in run.header.cells)


def without_end(sample: Sample) -> Sample:
    return replace(sample, finish_reason=None) if sample.block != 1 else sample


def test_only_what_is_broken_is_refused() -> None:
    run = a_run(cells=(a_cell(1), a_cell(4)))
    one_cell = check(changed(run, lambda each: without_end(each) if each.cell == "chat, 1 users" else each))
    warm_up = check(changed(run, lambda each: each if each.part == "measured" else without_end(each)))

    assert one_cell.refusals("chat, 1 users")
    assert not one_cell.refusals("chat, 4 users")
    assert {each.arm for each in check(with_vitals(run, arm="baseline", cpu_s=100.0)).refusals()} == {"baseline"}
    assert warm_up.refusals() == ()
    assert check(replace(run, samples=(), vitals=())).refusals() == ()


PAGE = Path(__file__).parents[3] / "docs/bench_reports.md"


def test_every_check_gives_a_result_and_is_in_the_page() -> None:
    runs = (
        a_run(with_log=True),
        a_run(cells=(an_open_cell(),)),
        a_run(cells=[a_cell(users, caching_forbidden=True) for users in (1, 2, 4)]),
    )
    results = [each for run in runs for each in check(run).results]
    table = PAGE.read_text().partition("| check | looks for | refuses when |\n|---|---|---|\n")[2].partition("\n\n")[0]

    assert {each.check for each in results} == {row.split(" | ")[0][2:] for row in table.splitlines()}
    assert all(each.sentence for each in results)


def test_one_slow_request_is_no_fault() -> None:
    run = a_run(pairs=100)
    slow = run.measured()[-1]

    def slower(sample: Sample) -> Sample:
        if sample is not slow:
            return sample
        late = tuple(stamp + 5_000 * MS for stamp in sample.token_ns)
        return replace(sample, token_ns=late, ended_ns=late[-1], first_event_ns=late[0], first_content_ns=late[0])

    assert check(changed(run, slower)).refusals() == ()
