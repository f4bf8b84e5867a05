from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, strategies as st

from fastlane.emulator import Fault
from fastlane.emulator._faults import KINDS, FaultRules, parse_faults
from fastlane.errors import ConfigurationError


def struck_by(rules: FaultRules, random: Random, *, encoded: bool = False, target: str = "") -> tuple[Fault, ...]:
    return rules.striking((), tag=None, random=random, encoded=encoded, target=target)


def test_fault_syntax_parses_kind_value_and_settings() -> None:
    assert Fault.parse("status=429; retry_after=0.2 ;times=2") == Fault(
        kind="status", value=429, retry_after=0.2, times=2
    )
    assert Fault.parse("goaway=graceful;after=2") == Fault(kind="goaway", value="graceful", after=2)
    assert parse_faults("refuse, keepalive=0.1") == (Fault(kind="refuse"), Fault(kind="keepalive", value=0.1))
    assert parse_faults("") == ()


FAULTS = st.builds(
    lambda kind, number, after, code, times, every, probability, only, on: Fault(
        kind=kind,
        value={"goaway": "hard", "status": 400 + number % 200, "misparse": "all"}.get(kind, number + 1),
        after=after,
        code=code,
        times=times,
        every=every,
        probability=probability,
        only=only,
        on=on,
    ),
    st.sampled_from(sorted(KINDS)),
    st.integers(0, 999),
    st.integers(0, 99),
    st.integers(0, 13),
    st.none() | st.integers(1, 9),
    st.none() | st.integers(1, 9),
    st.none() | st.floats(0, 1),
    st.sampled_from([None, "encoded"]),
    st.sampled_from([None, "POST batches", "files/*/content"]),
)


@given(FAULTS)
def test_fault_written_is_read_as_itself(fault: Fault) -> None:
    assert Fault.parse(str(fault)) == fault


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("meteor", "unknown fault 'meteor': the known ones are status"),
        ("status", "needs a number"),
        ("status=200", "from 400 to 599"),
        ("stall=long", "value"),
        ("goaway", "graceful or hard"),
        ("stall;after=soon", "after: Input should be a valid integer"),
        ("stall;later=1", "later: Unexpected keyword argument"),
        ("stall;every=0", "every: Input should be greater than or equal to 1"),
        ("stall;probability=2", "probability"),
        ("keepalive=0", "takes a number from 0.001"),
        ("misparse=some", "value"),
        ("drop;only=plain", "only: Input should be 'encoded'"),
        ("hang=hard", "needs a number"),
    ],
)
def test_fault_that_cannot_be_is_refused_with_what_to_do(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Fault.parse(text)


@pytest.mark.parametrize(
    ("on", "struck"),
    [
        ("POST batches", {"POST batches"}),
        ("batches", {"POST batches", "GET batches"}),
        ("batches*", {"POST batches", "GET batches", "POST batches/b/cancel"}),
        ("* files", {"GET files"}),
    ],
)
def test_rule_strikes_the_requests_that_its_pattern_fits(on: str, struck: set[str]) -> None:
    targets = ["POST batches", "GET batches", "POST batches/b/cancel", "GET files"]
    rules = FaultRules([Fault(kind="status", value=500, on=on)])

    assert {each for each in targets if struck_by(rules, Random(0), target=each)} == struck


def test_fault_probability_is_seeded_and_accurate() -> None:
    def struck() -> list[int]:
        rules, random = FaultRules([Fault(kind="refuse", probability=0.3)]), Random(5)
        return [len(struck_by(rules, random)) for _ in range(1_000)]

    assert 250 < sum(struck()) < 350
    assert struck() == struck()
