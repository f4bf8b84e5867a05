"""Histories of agents with tools, drawn at random, and the rules that providers have for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

_WORDS = (
    "cache",
    "token",
    "socket",
    "refund",
    "invoice",
    "parser",
    "retry",
    "import",
    "return",
    "class",
    "値段",
    "naïve",
)
_FILES = ("src/app.py", "README.md")
_TOOLS = ("read_file", "read_file", "search", "run", "write_file", "next_page")


def history(random: Random, endpoint: str = "/chat/completions") -> list[dict[str, Any]]:
    """Draw a history for an endpoint that its provider would take."""
    drawn = _Drawn(random, chat=endpoint == "/chat/completions")
    return drawn.history()


class _Drawn:
    """One history in the making."""

    def __init__(self, random: Random, *, chat: bool) -> None:
        self._random = random
        self._chat = chat
        self._calls = 0
        # Some servers begin to count anew with every answer.
        self._ids_come_again = random.random() < 0.2
        self._outputs: list[str] = []

    def history(self) -> list[dict[str, Any]]:
        random = self._random
        made: list[dict[str, Any]] = []
        if random.random() < 0.8:
            made.append({"role": random.choice(("system", "developer")), "content": self._text(40)})
        if random.random() < 0.1:
            made.append({"role": "assistant", "content": "How can I help?"})
        for _ in range(random.randint(1, 8)):
            made += self._turn()
        # What is sent ends with what is to be answered, or somewhere in between when a history is only looked at.
        if random.random() < 0.6 and made[-1].get("role") == "assistant":
            made.append({"role": "user", "content": self._text(20)})
        return made

    def _turn(self) -> list[dict[str, Any]]:
        random = self._random
        made: list[dict[str, Any]] = [{"role": "user", "content": self._text(30)}]
        if random.random() < 0.1:
            made.append({"role": "user", "content": [{"type": self._part_type(), "text": self._text(20)}]})
        if random.random() < 0.05:
            made.append({"role": "developer", "content": "Answer briefly."})
        for _ in range(random.choice((0, 0, 1, 2, 5))):
            made += self._step()
        if random.random() < 0.9:
            made.append({"role": "assistant", "content": self._text(30)})
        return made

    def _part_type(self) -> str:
        return "text" if self._chat else "input_text"

    def _step(self) -> list[dict[str, Any]]:
        calls = [self._call() for _ in range(self._random.choice((1, 1, 1, 2, 3)))]
        if self._chat:
            said: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": calls}
            return [said, *(self._result(call["id"]) for call in calls)]
        made: list[dict[str, Any]] = []
        if self._random.random() < 0.3:
            made.append({"type": "reasoning", "id": f"rs_{self._random.random()}", "summary": []})
        if self._random.random() < 0.3:
            made.append({"type": "message", "role": "assistant", "content": self._text(10)})
        return [*made, *calls, *(self._result(call["call_id"]) for call in calls)]

    def _call(self) -> dict[str, Any]:
        random = self._random
        self._calls += 1
        call_id = f"call_{self._calls % 4}" if self._ids_come_again else f"call_{self._calls}"
        name = random.choice(_TOOLS)
        given: dict[str, Any] = {} if name == "next_page" else {"path": random.choice(_FILES)}
        if random.random() < 0.2:
            given["start_line"] = random.choice((1, 100))
        function = {"name": name, "arguments": json.dumps(given) if random.random() < 0.95 else "{not JSON"}
        if self._chat:
            return {"id": call_id, "type": "function", "function": function}
        return {"type": "function_call", "call_id": call_id, **function}

    def _result(self, call_id: str) -> dict[str, Any]:
        random = self._random
        if self._outputs and random.random() < 0.3:
            text = random.choice(self._outputs)
            text = text if random.random() < 0.5 else text + "\nand one line more"
        else:
            text = self._text(random.choice((1, 60, 300, 300)))
        self._outputs.append(text)
        content: Any = text if random.random() < 0.9 else [{"type": self._part_type(), "text": text}]
        if self._chat:
            return {"role": "tool", "tool_call_id": call_id, "content": content}
        return {"type": "function_call_output", "call_id": call_id, "output": content}

    def _text(self, words: int) -> str:
        random = self._random
        drawn = [random.choice(_WORDS) + random.choice((" ", " ", "\n")) for _ in range(random.randint(1, words))]
        return "".join(drawn) + str(random.random())


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
