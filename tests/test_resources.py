"""A call starts where the application issues it, and not where it has been built."""

from __future__ import annotations

import os
from time import perf_counter_ns as now_ns
from typing import Any

import pytest

import fastlane
from tests.programs import run_python


class Message(dict[str, Any]):
    """A message that notes when it is looked at."""

    def __init__(self, looked_at: list[int]) -> None:
        super().__init__(role="user", content="Is water wet?")
        self.looked_at = looked_at

    def items(self) -> Any:
        self.looked_at.append(now_ns())
        return super().items()


def test_building_the_request_belongs_to_the_call(arguments: dict[str, Any]) -> None:
    looked_at: list[int] = []
    with fastlane.OpenAI(**arguments) as client:
        issued_ns = now_ns()
        client.chat.completions.create(model="m", messages=[Message(looked_at)])  # type: ignore[list-item]

        (record,) = client.calls
    assert looked_at
    assert issued_ns <= record.timeline.started_ns <= looked_at[0]


def test_nested_call_has_its_own_start_time(arguments: dict[str, Any]) -> None:
    inner = fastlane.OpenAI(**arguments)

    def key() -> str:
        inner.models.list()
        return "sk-of-the-moment"

    with fastlane.OpenAI(**{**arguments, "api_key": key}) as outer:
        outer.chat.completions.create(model="m", messages=[{"role": "user", "content": "Is water wet?"}])

        (around,), (inside,) = outer.calls, inner.calls
    inner.close()
    assert around.timeline.started_ns < inside.timeline.started_ns
    assert inside.timeline.ended_ns < around.timeline.ended_ns


FORKS_AMID_THE_FIRST_USE = """
import importlib.abc, os, sys, threading, time
import fastlane
from fastlane.decode import event_decoder

amid = threading.Event()

def pause():
    amid.set()
    time.sleep(1)

class Slowly(importlib.abc.MetaPathFinder):
    '''A disk that takes its time over one of openai's modules.'''

    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            pause()

def pausing(frame, event, _):
    caller = frame.f_back
    if event == "call" and caller and caller.f_code.co_name == "model_rebuild" and not amid.is_set():
        if caller.f_locals["cls"].__name__ == sys.argv[1]:
            pause()

def use():
    if client:
        client.chat.completions, client.responses
    from openai.types.responses import ResponseStreamEvent
    event_decoder(ResponseStreamEvent)

sys.meta_path.insert(0, Slowly())
threading.setprofile(pausing)
# Before a fork, a new client is prepared, which would wait for a decoder that is being made.
client = fastlane.OpenAI(api_key="any") if "." in sys.argv[1] else None
first = threading.Thread(target=use)
first.start()
assert amid.wait(60)
child = os.fork()
if child == 0:
    use()
    os._exit(0)
first.join()
for _ in range(1_000):
    pid, status = os.waitpid(child, os.WNOHANG)
    if pid:
        sys.exit(os.waitstatus_to_exitcode(status))
    time.sleep(0.03)
os.kill(child, 9)
os.waitpid(child, 0)
sys.exit("the child hangs")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize(
    "amid", ["openai.resources.chat.completions.completions", "openai.resources.responses", "ResponseTextDeltaEvent"]
)
@pytest.mark.slow
def test_fork_during_first_use_leaves_a_working_child(amid: str) -> None:
    ran = run_python("-W", "ignore::DeprecationWarning", "-c", FORKS_AMID_THE_FIRST_USE, amid)

    assert (ran.returncode, ran.stderr) == (0, "")
