from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import openai
import pytest

from fastlane import AsyncOpenAI, ConfigurationError, Connection, OpenAI, PromptCache, Routing
from fastlane.bench.workloads import Workload, read_workload
from fastlane.catalog import Catalog, Route
from fastlane.emulator import Emulator
from fastlane.experiments import Experiment
from fastlane.recordings import Recording, record
from tests.attempts.scripted import MESSAGES, answer, model_at, two_upstreams
from tests.call_peer import CallPeer, Reply, ours

SYSTEM = {"role": "system", "content": "Be brief and kind. " * 200}
TOOL = {"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": {"type": "object"}}}


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def calls(path: Path) -> list[dict[str, Any]]:
    return [row for row in rows(path) if "at" in row]


def send(client: Any, messages: list[Any], **more: Any) -> Any:
    return client.chat.completions.create(model="gpt-4.1-nano", messages=messages, **more)


def ask(client: openai.OpenAI, text: str = "Hi", **more: Any) -> Any:
    return send(client, [SYSTEM, {"role": "user", "content": text}], **more)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.jsonl"


def test_the_shape_of_a_call_is_written(arguments: dict[str, Any], path: Path) -> None:
    with OpenAI(**arguments) as client, record(client, path):
        ask(client, "Hello there", temperature=0.5, max_completion_tokens=20, tools=[TOOL], service_tier="flex")

    header, call = rows(path)
    assert header["fastlane_recording"] == 1
    assert not header["with_text"]
    assert (call["messages"], call["tools"], call["attachments"]) == (2, 1, 0)
    assert call["characters"] == (2 + 3_800) + (2 + 11) + (1 + len(json.dumps([TOOL])))
    assert (call["model"], call["endpoint"], call["stream"]) == ("gpt-4.1-nano", "/chat/completions", False)
    assert call["sampling"] == {"temperature": 0.5, "max_completion_tokens": 20, "service_tier": "flex"}
    assert call["input_tokens"] > 900
    assert 0 < call["output_tokens"] <= 20
    assert (call["outcome"], call["error"], call["status"]) == ("completed", None, 200)
    assert call["at"] >= 0


@pytest.mark.parametrize("stream", [False, True])
def test_no_secret_of_a_call_is_in_the_file(provider: Emulator, path: Path, stream: bool) -> None:
    secret = "planted-9f31c7"
    key = f"sk-{secret}-key"
    client = OpenAI(api_key=key, base_url=provider.base_url, default_headers={"x-tenant": f"{secret}-header"})
    with client, record(client, path) as recording:
        answer = send(
            client,
            [
                {"role": "system", "content": f"{secret}-system", "name": f"{secret}-name"},
                {"role": "user", "content": [{"type": "text", "text": f"{secret}-part"}]},
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": f"{secret}-id", "type": "function",
                     "function": {"name": f"{secret}-tool", "arguments": f'{{"a": "{secret}-argument"}}'}}]},
                {"role": "tool", "tool_call_id": f"{secret}-id", "content": f"{secret}-result"},
            ],
            tools=[{"type": "function", "function": {"name": f"{secret}-tool", "description": f"{secret}-told",
                                                     "parameters": {"type": "object"}}}],
            stop=f"{secret}-stop",
            user=f"{secret}-user",
            metadata={"who": f"{secret}-metadata"},
            prompt_cache_key=f"{secret}-cache",
            safety_identifier=f"{secret}-safety",
            stream=stream,
            max_completion_tokens=8,
            extra_headers={"x-request": f"{secret}-extra"},
            extra_body={"reasoning_effort": f"{secret}-effort", "own": f"{secret}-own"},
        )  # fmt: skip
        if stream:
            for _ in answer:
                pass
        with pytest.raises(openai.APIError):
            send(client, [{"role": f"{secret}-role", "content": "x"}])

    text = path.read_text()
    assert recording.written == 2
    assert secret not in text
    assert calls(path)[0]["messages"] == 4
    assert calls(path)[1]["error"] == "BadRequestError"
    assert calls(path)[1]["messages"] == 1


def test_text_is_written_when_it_is_asked_for(arguments: dict[str, Any], path: Path) -> None:
    with OpenAI(**arguments) as client, record(client, path, text=True):
        ask(client, "Hello there", tools=[TOOL], max_completion_tokens=9)

    workload = read_workload(path)

    (turn,) = workload.conversations[0].turns
    assert list(turn.messages) == [SYSTEM, {"role": "user", "content": "Hello there"}]
    assert list(turn.tools) == [TOOL]
    assert arguments["api_key"] not in path.read_text()


async def several(client: AsyncOpenAI) -> None:
    answers = [
        client.chat.completions.create(
            model="gpt-4.1-nano", messages=[{"role": "user", "content": f"Question {number}"}], max_completion_tokens=8
        )
        for number in range(8)
    ]
    await asyncio.gather(*answers)
    async with client.responses.stream(model="gpt-4.1-nano", input="Go on", instructions="Be brief") as stream:
        async for _ in stream:
            pass


def test_the_shape_of_a_conversation_is_replayed_with_its_shared_prefixes(
    arguments: dict[str, Any], path: Path
) -> None:
    talk: list[dict[str, Any]] = [SYSTEM, {"role": "user", "content": "What is " * 400}]
    with OpenAI(**arguments) as client, record(client, path):
        for number in range(3):
            send(client, talk, tools=[TOOL])
            # The application goes on with the same list.
            talk += [{"role": "assistant", "content": "It is. " * 90}, {"role": "user", "content": f"Really {number}?"}]
        send(client, [{"role": "user", "content": "Alone " * 500}])

    workload = read_workload(path)
    prompts = [written(workload, at) for at in range(4)]

    recorded = calls(path)
    assert [call["messages"] for call in recorded] == [2, 4, 6, 1]
    assert workload.shares_prefixes
    # As long as the shared part of the real prompts, but for the last block of 512 characters.
    shared = shared_beginning(prompts[0], prompts[1]) / len(prompts[0])
    assert shared > 0.8
    assert shared_beginning(prompts[0], prompts[3]) < 12
    for call, conversation in zip(recorded, workload.conversations, strict=True):
        (turn,) = conversation.turns
        assert turn.answer_tokens == max(2, call["output_tokens"])
        assert turn.input_tokens == call["input_tokens"]


def shared_beginning(one: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def written(workload: Workload, at: int) -> str:
    return "".join(str(message["content"]) for message in workload.conversations[at].turns[0].messages)


def test_a_replay_is_counted_about_as_the_recorded_calls_were(arguments: dict[str, Any], path: Path) -> None:
    with OpenAI(**arguments) as client:
        with record(client, path):
            for size in (50, 300, 900):
                ask(client, "What is the weather? " * size, max_completion_tokens=4)
        workload = read_workload(path)
        for call, conversation in zip(calls(path), workload.conversations, strict=True):
            (turn,) = conversation.turns
            answer = send(client, list(turn.messages), max_completion_tokens=2)
            assert answer.usage.prompt_tokens == pytest.approx(call["input_tokens"], rel=0.02)


def test_calls_after_the_end_are_not_recorded(arguments: dict[str, Any], path: Path) -> None:
    with OpenAI(**arguments) as client:
        recording = record(client, path)
        ask(client, max_completion_tokens=2)
        recording.close()
        ask(client, max_completion_tokens=2)

    assert (recording.written, recording.dropped) == (1, 0)
    assert len(calls(path)) == 1


def test_copies_of_the_client_are_recorded_with_it_and_its_plays_stay_as_they_are(
    arguments: dict[str, Any], path: Path
) -> None:
    with OpenAI(**arguments) as client:
        before = client.with_options(timeout=30)
        with record(client, path) as recording:
            ask(before, max_completion_tokens=2)
            assert client.last_call is not None
            assert not any("Companion" in play for play in client.last_call.plays)
            assert recording.flush()
            assert len(calls(path)) == 1


def test_the_arms_of_an_experiment_are_recorded_and_left_again(
    arguments: dict[str, Any], path: Path, tmp_path: Path
) -> None:
    arms = {"control": (Connection(),), "cached": (Connection(), PromptCache())}
    experiment = Experiment("recorded", arms, share={"cached": 0.5}, store=tmp_path / "experiment.sqlite")
    with OpenAI(**arguments, experiment=experiment) as client:
        ask(client, max_completion_tokens=2)  # Before it begins, one arm is there.
        with record(client, path) as recording:
            for _ in range(16):
                ask(client, max_completion_tokens=2)
        ask(client, max_completion_tokens=2)
        chosen = {call.experiment.arm for call in client.calls if call.experiment is not None}
    experiment.close()

    assert recording.written == len(calls(path)) == 16
    assert chosen == {"control", "cached"}


def test_what_cannot_be_written_fails_no_call(
    arguments: dict[str, Any], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with OpenAI(**arguments, raise_play_errors=True) as client, record(client, path) as recording:
        recording.flush()
        # The file's place is taken by a folder: every write fails from now on.
        path.unlink()
        path.mkdir()
        for _ in range(3):
            assert ask(client, max_completion_tokens=2).choices
        recording.flush()

        assert (recording.written, recording.dropped) == (0, 3)
    assert [entry.message for entry in caplog.records if "recording" in entry.message] == [
        "a recording of calls is not complete: IsADirectoryError (logged once; no call is affected)"
    ]


def test_a_call_that_fails_is_written_with_the_class_of_its_error(one_peer: CallPeer, path: Path) -> None:
    one_peer.replies.append(Reply(status=429, body=b'{"error": {"message": "planted"}}'))
    with ours(one_peer) as client, record(client, path), pytest.raises(openai.RateLimitError):
        ask(client)

    (call,) = calls(path)
    assert (call["outcome"], call["error"], call["status"]) == ("failed", "RateLimitError", 429)
    assert "planted" not in path.read_text()


def test_threads_share_a_recording(arguments: dict[str, Any], path: Path) -> None:
    with OpenAI(**arguments) as client, record(client, path) as recording:
        threads = [threading.Thread(target=ask, args=(client, f"Thread {at}")) for at in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert recording.written == len(calls(path)) == 12


def test_only_its_owner_may_read_it(arguments: dict[str, Any], path: Path) -> None:
    with OpenAI(**arguments) as client, record(client, path):
        pass

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


_PROGRAM = """
import os, sys
from fastlane import OpenAI
from fastlane.recordings import record
client = OpenAI(api_key="sk-test", base_url=sys.argv[1])
record(client, sys.argv[2])
def ask(text):
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}], max_completion_tokens=2)
ask("Before")
child = os.fork()
ask("In the child" if child == 0 else "In the parent, later")
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.slow
def test_what_waits_is_written_at_exit_by_parents_and_forked_children(provider: Emulator, path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", _PROGRAM, provider.base_url, str(path)],
        check=True,
        env={**os.environ, **provider.environment},
        timeout=120,
    )

    found = calls(path)
    # Each of one message, with a mark and a letter for its role.
    assert sorted(call["characters"] for call in found) == [8, 14, 22]
    assert len({call["session"] for call in found}) == 2
    assert len({row["family"] for row in rows(path) if "family" in row}) == 1
    assert len(read_workload(path).conversations) == 3


def test_a_later_process_appends_to_the_same_file(arguments: dict[str, Any], path: Path) -> None:
    for _ in range(2):
        with OpenAI(**arguments) as client, record(client, path):
            ask(client, max_completion_tokens=2)

    assert [next(iter(row)) for row in rows(path)] == ["fastlane_recording", "session", "fastlane_recording", "session"]
    assert len(read_workload(path).conversations) == 2


def test_a_disabled_client_is_not_recorded(
    arguments: dict[str, Any], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", "1")
    with OpenAI(**arguments) as client, record(client, path) as recording:
        ask(client, max_completion_tokens=2)

    assert isinstance(recording, Recording)
    assert not path.exists()


def test_what_cannot_be_recorded_is_refused_at_once(arguments: dict[str, Any], tmp_path: Path) -> None:
    with openai.OpenAI(**arguments) as stock, pytest.raises(ConfigurationError, match=r"fastlane\.OpenAI"):
        record(stock, tmp_path / "a")  # type: ignore[arg-type]
    with OpenAI(**arguments) as client:
        with pytest.raises(ConfigurationError, match="cannot record to"):
            record(client, tmp_path / "missing" / "calls.jsonl")
        with pytest.raises(ConfigurationError, match="max_bytes takes 65,536 or more, got 10"):
            record(client, tmp_path / "a", max_bytes=10)
        with pytest.raises(ConfigurationError, match="text takes True or False"):
            record(client, tmp_path / "a", text="yes")  # type: ignore[arg-type]


@pytest.mark.usefixtures("trusting_peers")
def test_a_routed_call_is_written_once(path: Path) -> None:
    with two_upstreams() as (near, far):
        near.usually, far.usually = answer("from near"), answer("from far")
        catalog = Catalog(
            models=(
                model_at(near, first_token_s=0.01, quality=40.0),
                model_at(far, first_token_s=0.5, quality=60.0),
            )
        )
        plays = [Connection(http2="require"), Routing(catalog)]
        client = OpenAI(api_key="sk-own", base_url=near.url, max_retries=0, only_plays=plays)
        with client, record(client, path):
            client.chat.completions.create(model=Route(min_quality=40), messages=MESSAGES)

    (call,) = calls(path)
    assert call["outcome"] == "completed"
