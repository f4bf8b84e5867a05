"""Every benchmark can be run, and the line it ends with can be read by a machine."""

from __future__ import annotations

import json

import pytest

from benchmarks.__main__ import benchmark, main, names
from benchmarks._paired import median
from benchmarks._report import Report, as_json, print_reach, print_report
from tests.programs import printed_by


def run(name: str, *arguments: str) -> str:
    return printed_by("-m", "benchmarks", name, *arguments)


@pytest.mark.parametrize("name", names())
def test_every_benchmark_explains_itself(name: str) -> None:
    description, measure = benchmark(name)

    assert "Inside" in description
    assert callable(measure)


def test_help_of_a_benchmark_is_its_description(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["threads", "--help"]) == 0

    printed = capsys.readouterr().out
    assert printed.startswith("python -m benchmarks threads [--quick] [--json]")
    assert "Inside" in printed


def test_tables_have_every_target_and_how_many_hold(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(figures={"any_ms": 1, "other_ms": None}, reach={"any_ms": "<= 2", "other_ms": "<= 2"})
    print_report("any", report)
    print_reach([json.loads(as_json("any", report))])

    printed = capsys.readouterr().out
    assert "python -m benchmarks any --help" in printed
    assert "other_ms" in printed
    assert "1 of 2 targets hold" in printed


@pytest.mark.slow
@pytest.mark.timeout(600)  # a benchmark takes as long as the machine makes it
def test_last_line_is_json_that_says_what_held() -> None:
    line = json.loads(run("bounded_cost", "--quick", "--json").splitlines()[-1])

    assert set(line) == {"name", "figures", "reach", "conditions"}
    assert line["name"] == "bounded_cost"
    assert all(isinstance(value, int | float) for value in line["figures"].values())
    for reach in line["reach"]:
        assert set(reach) == {"figure", "op", "target", "held"}
        assert reach["figure"] in line["figures"]
    assert line["conditions"]["openai"]


@pytest.mark.parametrize(
    ("value", "op", "held"),
    [
        (2.0, "<=", True),
        (2.1, "<=", False),
        (2.0, ">=", True),
        (1.9, ">=", False),
        (2.0, "==", True),
        (None, "<=", False),
    ],
)
def test_benchmark_target_is_held_or_missed(value: float | None, op: str, held: bool) -> None:
    (reached,) = Report(figures={"seconds": value}, reach={"seconds": f"{op} 2"}).reached()

    assert reached["held"] is held


def test_median_interval_contains_it_and_narrows() -> None:
    few, many = median([float(value) for value in range(9)]), median([value / 100 for value in range(900)])

    assert few.low <= few.value <= few.high
    assert many.low <= many.value <= many.high
    assert many.high - many.low < few.high - few.low
