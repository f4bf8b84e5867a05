from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx2
import openai
import pytest

from fastlane.doctor._check import Cost, ProviderCheck, run
from fastlane.doctor._findings import ProviderFinding
from fastlane.doctor._session import DoctorSession, DoctorSettings
from fastlane.doctor.target import target_of

SEEN = ProviderFinding(group="streaming", looked_at="something", seen="it was there")


@pytest.fixture
def session() -> DoctorSession:
    return DoctorSession(settings=DoctorSettings(target=target_of("http://localhost/v1"), key_source="MY_KEY"))


def test_what_was_seen_before_an_error_counts(session: DoctorSession) -> None:
    def look(_session: DoctorSession) -> Iterator[ProviderFinding]:
        yield SEEN
        raise RuntimeError("the prompt was: hidden")

    found = run(ProviderCheck(group="streaming", name="a look", look=look, timeout_s=10), session)

    assert found[0] == SEEN
    assert (found[1].looked_at, found[1].seen, found[1].state) == ("a look", "RuntimeError", "failed")


def test_a_look_that_takes_too_long_is_left_behind(session: DoctorSession) -> None:
    released = threading.Event()

    def look(_session: DoctorSession) -> Iterator[ProviderFinding]:
        yield SEEN
        released.wait(60)

    found = run(ProviderCheck(group="streaming", name="a look", look=look, timeout_s=1), session)
    released.set()

    assert found[0] == SEEN
    assert found[1].seen == "not finished within 1 s"


def test_a_refusal_is_told_by_its_status_and_what_to_do_and_not_by_its_body(session: DoctorSession) -> None:
    request = httpx2.Request("POST", "http://localhost/v1")
    response = httpx2.Response(401, request=request)

    def look(_session: DoctorSession) -> Iterator[ProviderFinding]:
        raise openai.AuthenticationError("key sk-hidden is wrong", response=response, body=None)
        yield SEEN

    (found,) = run(ProviderCheck(group="streaming", name="a look", look=look, timeout_s=10), session)

    assert found.seen == "AuthenticationError, status 401"
    assert "MY_KEY" in found.advice


def test_costs_add_up() -> None:
    one = Cost(calls=1, input_tokens=2, output_tokens=3)

    assert one + one == Cost(calls=2, input_tokens=4, output_tokens=6)
