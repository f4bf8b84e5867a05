"""What the lines of a batch's files make of its jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.batch import WorkerSettings
from fastlane.batch.answers import outcome_of, read_line
from fastlane.batch.jobs import JobOutcome
from tests.batch.conftest import packed

SETTINGS = WorkerSettings(max_attempts=3, retry_s=10.0)


def told(status: int | None = None, error: str | None = None, body: Any = None, attempts: int = 1) -> JobOutcome:
    response = None if status is None else {"status_code": status, "request_id": "r", "body": body}
    line = {
        "id": "x",
        "custom_id": "job-7",
        "response": response,
        "error": None if error is None else {"code": error, "message": "a message"},
    }
    name, read = read_line(json.dumps(line).encode())
    assert name == "job-7"
    return outcome_of(read, packed(attempts=attempts), SETTINGS)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_a_failure_that_may_pass_is_tried_again_later_and_not_for_ever(status: int) -> None:
    first, last = told(status, body={"error": {}}), told(status, body={"error": {}}, attempts=3)

    assert (first.state, first.not_before_s, first.error) == ("waiting", 10.0, f"status_{status}")
    assert told(status, attempts=2).not_before_s == 20.0
    assert (last.state, last.status_code, last.body) == ("failed", status, b'{"error":{}}')


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
def test_a_refusal_is_for_good_and_kept(status: int) -> None:
    outcome = told(status, body={"error": {"message": "no"}})

    assert (outcome.state, outcome.status_code) == ("failed", status)
    assert json.loads(outcome.body) == {"error": {"message": "no"}}


def test_a_line_without_an_answer_is_tried_again_where_its_error_may_pass() -> None:
    assert (told(error="batch_expired").state, told(error="batch_expired").error) == ("waiting", "batch_expired")
    assert told(error="batch_expired", attempts=3).state == "failed"
    assert (told().state, told().error) == ("waiting", "no_answer")
    assert (told(error="content_refused").state, told(error="content_refused").error) == ("failed", "content_refused")


@pytest.mark.parametrize("name", ["job-07", "job-", "request-7", "", None, 7, "job-7 "])
def test_a_line_of_somebody_else_is_none_of_ours(name: object) -> None:
    assert read_line(json.dumps({"custom_id": name, "response": None}).encode())[0] != "job-7"


@given(st.dictionaries(st.text(), st.text(), min_size=1), st.data())
def test_a_line_that_was_cut_off_is_no_answer(line: dict[str, str], data: st.DataObject) -> None:
    whole = json.dumps({"custom_id": "job-7", "response": {"status_code": 200, "body": line}}).encode()
    cut = data.draw(st.integers(0, len(whole) - 1))

    assert read_line(whole[:cut]) == ("", {})


@given(
    st.recursive(
        st.none() | st.text() | st.floats(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    )
)
def test_what_says_nothing_of_tokens_is_read_without_complaint(body: object) -> None:
    outcome = told(200, body={"usage": body})

    assert (outcome.input_tokens, outcome.output_tokens, outcome.cached_tokens) == (None, None, None)
