"""Histories of agents with tools, drawn at random, and the rules that providers have for them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

from fastlane import Call, ContextTrimming
from fastlane.records import ContextTrimmingRecord, Usage

_WORDS = ["cache", "token", "refund", "invoice", "parser", "retry", "import", "return", "class", "値段", "naïve"]
_FILES = ("src/app.py", "README.md")
_TOOLS = ("read_file", "read_file", "search", "run", "write_file", "next_page")


CHAT = "/chat/completions"


def call(messages: Any, *, endpoint: str = CHAT, name: str = "messages", placements: Any = None, **body: Any) -> Call:
    """A call with these messages."""
    return Call(
        call_id="1",
        endpoint=endpoint,
        origin="https://example.com:443",
        body={"model": "m", name: messages, **body},
        stream=True,
        placements=placements,
    )


def plan(play: ContextTrimming, asked: Call) -> tuple[Call, ContextTrimmingRecord]:
    """The call as the play plans it, and the section of its record."""
    session: Any = play.open(asked)
    planned = session.plan(asked)
    section = session.close(SimpleNamespace(usage=Usage()))
    assert isinstance(section, ContextTrimmingRecord)
    return planned, section


def history(random: Random, endpoint: str = CHAT) -> list[dict[str, Any]]:
    """Draw a history for an endpoint that its provider would take."""
    chat = endpoint == CHAT
    part = "text" if chat else "input_text"
    # Some servers begin to count anew with every answer.
    ids = itertools.cycle(range(4)) if random.random() < 0.2 else itertools.count()
    outputs: list[str] = []

    def text(words: int) -> str:
        drawn = [random.choice(_WORDS) + random.choice("  \n") for _ in range(random.randint(1, words))]
        return "".join(drawn) + str(random.random())

    def call() -> dict[str, Any]:
        name = random.choice(_TOOLS)
        given: dict[str, Any] = {} if name == "next_page" else {"path": random.choice(_FILES)}
        if random.random() < 0.2:
            given["start_line"] = random.choice((1, 100))
        function = {"name": name, "arguments": json.dumps(given) if random.random() < 0.95 else "{not JSON"}
        call_id = f"call_{next(ids)}"
        if chat:
            return {"id": call_id, "type": "function", "function": function}
        return {"type": "function_call", "call_id": call_id, **function}

    def result(of: dict[str, Any]) -> dict[str, Any]:
        output = text(random.choice((1, 60, 300, 300)))
        if outputs and random.random() < 0.3:
            output = random.choice(outputs) + random.choice(("", "\nand one line more"))
        outputs.append(output)
        content: Any = output if random.random() < 0.9 else [{"type": part, "text": output}]
        if chat:
            return {"role": "tool", "tool_call_id": of["id"], "content": content}
        return {"type": "function_call_output", "call_id": of["call_id"], "output": content}

    def step() -> list[dict[str, Any]]:
        calls = [call() for _ in range(random.choice((1, 1, 1, 2, 3)))]
        results = [result(one) for one in calls]
        if chat:
            return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]
        reply: list[dict[str, Any]] = []
        if random.random() < 0.3:
            reply.append({"type": "reasoning", "id": f"rs_{random.random()}", "summary": []})
        if random.random() < 0.3:
            reply.append({"type": "message", "role": "assistant", "content": text(10)})
        return [*reply, *calls, *results]

    made: list[dict[str, Any]] = []
    if random.random() < 0.8:
        made.append({"role": random.choice(("system", "developer")), "content": text(40)})
    if random.random() < 0.1:
        made.append({"role": "assistant", "content": "How can I help?"})
    for _ in range(random.randint(1, 8)):
        made.append({"role": "user", "content": text(30)})
        if random.random() < 0.1:
            made.append({"role": "user", "content": [{"type": part, "text": text(20)}]})
        if random.random() < 0.05:
            made.append({"role": "developer", "content": "Answer briefly."})
        for _ in range(random.choice((0, 0, 1, 2, 5))):
            made += step()
        if random.random() < 0.9:
            made.append({"role": "assistant", "content": text(30)})
    # What is sent ends with what is to be answered, or somewhere in between when a history is only looked at.
    if random.random() < 0.6 and made[-1].get("role") == "assistant":
        made.append({"role": "user", "content": text(20)})
    return made


def broken_pairs(messages: Sequence[Any]) -> list[str]:
    """Say what a provider would refuse: calls without results, results without calls, thoughts without their answer.

    Of chat completions: the results of an answer's calls come right behind it. Of responses: each call has its result,
    and a reasoning item goes on with an item of the model's.
    """
    found: list[str] = []
    waiting: set[str] = set()
    for index, message in enumerate(messages):
        result = message.get("tool_call_id")
        kind = message.get("type")
        if kind == "function_call_output":
            result = message["call_id"]
        if result is not None:
            if result not in waiting:
                found.append(f"messages[{index}] is the result of no call")
            waiting.discard(result)
            continue
        if kind == "function_call":
            waiting.add(message["call_id"])
            continue
        if waiting:
            found.append(f"messages[{index}] comes before the results of {sorted(waiting)}")
            waiting.clear()
        if kind == "reasoning":
            following = messages[index + 1] if index + 1 < len(messages) else {}
            if following.get("type") != "function_call" and following.get("role") != "assistant":
                found.append(f"messages[{index}] is a thought without its answer")
        waiting |= {call["id"] for call in message.get("tool_calls") or ()}
    if waiting:
        found.append(f"the results of {sorted(waiting)} are missing")
    return found
