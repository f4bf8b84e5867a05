from __future__ import annotations

import gc
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
from pydantic import BaseModel

import fastlane
from fastlane import BoundedOutput
from tests.call_peer import CallPeer
from tests.plays.bounded_output import answers as told
from tests.plays.bounded_output.answers import FORMAT, bounded, refusing, streamed, whole

SECRET = "the-prompt-that-nobody-may-keep"
MESSAGES: list[Any] = [{"role": "user", "content": SECRET}]
HELD = ("BoundedOutputSession", "JsonScanner", "OutputPlan", "OutputPlanner", "Problem", "WatchedAnswer")


class Ticket(BaseModel):
    category: Literal["billing", "bug", "shipping"]
    confidence: float


@contextmanager
def nothing_kept() -> Iterator[None]:
    """Nothing of a call's output is there behind it, without a garbage collection."""
    gc.disable()
    gc.freeze()  # what is there already need not be looked through
    try:
        yield
        kept = [type(one).__name__ for one in gc.get_objects() if type(one).__name__ in HELD]
        assert kept == []
    finally:
        gc.unfreeze()
        gc.enable()


ANSWERS: dict[str, list[Any]] = {
    "valid": [streamed(told.told(told.VALID))],
    "runs on": [streamed(told.told(f"{told.VALID}{' ' * 50}{told.VALID}"))],
    "repaired": [streamed(told.told(told.WRONG)), streamed(told.told(told.VALID))],
    "never valid": [streamed(told.told(told.WRONG))] * 2,
    "whole, never valid": [whole(told.WRONG)] * 2,
    "broken off": [streamed(told.told(told.VALID[:9], finish=None), done=False)],
    "refused": [refusing("no such model")],
    "field refused": [refusing("Unknown parameter: stream_options"), streamed(told.told(told.VALID))],
    "error in the middle": [streamed([*told.told(told.VALID[:9], finish=None), {"error": {"message": "no"}}])],
    "no JSON": [streamed(["data: {no"])],
    "cut off": [streamed(told.told(told.VALID[:9], finish="length"))],
}


def ask(client: Any, method: str) -> Any:
    form = FORMAT if method == "create" else Ticket
    return getattr(client.chat.completions, method)(model="m", messages=MESSAGES, response_format=form)


@pytest.mark.parametrize("reasks", [0, 1])
@pytest.mark.parametrize("method", ["create", "parse"])
def test_nothing_is_kept_of_a_call_that_is_over(one_peer: CallPeer, method: str, reasks: int) -> None:
    reports: list[fastlane.CallRecord] = []
    with bounded(one_peer, BoundedOutput(reasks=reasks), on_call_end=[reports.append]) as client:
        for name, replies in ANSWERS.items():
            one_peer.replies = list(replies)
            with nothing_kept():
                try:
                    ask(client, method)
                except Exception:  # noqa: BLE001 - it is what it leaves that counts
                    pass
            assert len(reports) == 1, name
            said = repr(reports.pop())
            for secret in (SECRET, "refund", "sk-test", told.VALID[:9]):
                assert secret not in said, name


def test_an_error_of_an_answer_says_nothing_of_its_text(one_peer: CallPeer) -> None:
    with bounded(one_peer) as client:
        one_peer.replies = [streamed(told.told(told.WRONG))]
        with pytest.raises(fastlane.InvalidOutputError) as caught:
            ask(client, "create")

    shown = "".join(traceback.format_exception(caught.value))
    assert "refund" not in f"{caught.value}{caught.value.args}"
    assert SECRET not in shown
    assert caught.value.attempts[0].text.startswith('{"category": "r')
