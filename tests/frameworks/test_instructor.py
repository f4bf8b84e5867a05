"""instructor talks through fastlane: `from_openai(client)`, or openai's module after `fastlane.install()`."""

from __future__ import annotations

from typing import Any, Literal

import instructor
import openai
import pydantic
import pytest
from instructor.core import InstructorRetryException

from tests.frameworks.lanes import PLAYS, QUESTION, Lane, River, is_river

MESSAGES: Any = [{"role": "user", "content": QUESTION}]
MODES = [
    instructor.Mode.TOOLS,
    instructor.Mode.TOOLS_STRICT,
    instructor.Mode.JSON_SCHEMA,
    instructor.Mode.RESPONSES_TOOLS,
]


class Ticket(pydantic.BaseModel):
    category: Literal["billing", "bug"]


@pytest.mark.parametrize("mode", MODES)
def test_structured_output(lane: Lane, mode: Any) -> None:
    client = instructor.from_openai(lane.client, mode=mode)
    for _ in range(3):
        assert is_river(client.create(model=lane.model, messages=MESSAGES, response_model=River))
    lane.went(3, structured=True)


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA])
async def test_structured_output_async(lane: Lane, mode: Any) -> None:
    client = instructor.from_openai(lane.async_client, mode=mode)
    for _ in range(3):
        assert is_river(await client.create(model=lane.model, messages=MESSAGES, response_model=River))
    lane.went(3)


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA])
def test_partial_objects_are_streamed(lane: Lane, mode: Any) -> None:
    client = instructor.from_openai(lane.client, mode=mode)
    seen = list(client.create_partial(model=lane.model, messages=MESSAGES, response_model=River))
    assert len(seen) > 1
    assert is_river(seen[-1])
    lane.went(1, streams=1)


def test_completion_is_returned_beside_the_object(lane: Lane) -> None:
    client = instructor.from_openai(lane.client)
    river, completion = client.create_with_completion(model=lane.model, messages=MESSAGES, response_model=River)
    assert is_river(river)
    assert completion.usage.completion_tokens > 0
    lane.went(1)


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA])
def test_instructor_retries_until_answer_is_valid(lane: Lane, mode: Any) -> None:
    lane.emulator.change(manner="wrong_enum")
    client = instructor.from_openai(lane.client, mode=mode)
    ticket: Any = client.create(model=lane.model, messages=MESSAGES, response_model=Ticket, max_retries=2)
    assert ticket.category in ("billing", "bug")
    # The play does not judge arguments of a tool that is not strict: instructor retries.
    repaired = lane.kind == PLAYS and mode == instructor.Mode.JSON_SCHEMA
    lane.went(1 if repaired else 2, attempts=2 if repaired else 1)


def test_provider_error_is_raised(lane: Lane) -> None:
    lane.emulator.set_faults("status=401")
    client = instructor.from_openai(lane.client)
    with pytest.raises(InstructorRetryException) as error:
        client.create(model=lane.model, messages=MESSAGES, response_model=River, max_retries=1)
    assert isinstance(error.value.__cause__, openai.AuthenticationError)
    lane.went(1, refused=1)


def test_failed_request_is_retried(lane: Lane) -> None:
    lane.emulator.set_faults("status=429;retry_after=0.01;times=1")
    client = instructor.from_openai(lane.client)
    assert is_river(client.create(model=lane.model, messages=MESSAGES, response_model=River))
    lane.went(1, attempts=2)
