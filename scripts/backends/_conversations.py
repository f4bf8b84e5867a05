"""Conversations of an airline's agent, cut into what its customers ask and what it does about each question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks._conversation import conversation, tools

Message = dict[str, Any]

SECRET = "passport-of-nobody-4711"
"""Stands in every place from which it could leak: prompts, tools, answers, headers, the key."""

# The first is short enough for a picture. All of them hold 22 answers: a second attempt of a late call needs 20 before.
_LENGTHS = (10, 22, 22, 22, 22)


class Step(NamedTuple):
    """One time that the agent was asked for its next message."""

    history: list[Message]
    """Without the policy."""
    said: Message
    """What it said, or which tool it called."""


class Conversation(NamedTuple):
    """One conversation."""

    policy: str
    questions: list[list[Step]]
    """For each message of the customer, the steps to its answer."""
    tools: list[Any]


def conversations() -> list[Conversation]:
    """Conversations of the sizes of recorded ones."""
    definitions = tools()
    definitions[0]["function"]["description"] += f" {SECRET}"
    return [_cut(conversation(messages), definitions) for messages in _LENGTHS]


def _cut(messages: Sequence[Message], tools: list[Any]) -> Conversation:
    policy, *rest = messages
    rest = [
        {**message, "content": f"{message['content']} {SECRET}"} if message["role"] == "user" else message
        for message in rest
    ]
    questions: list[list[Step]] = []
    for at, message in enumerate(rest):
        if message["role"] == "user":
            questions.append([])
        elif message["role"] == "assistant" and questions:
            questions[-1].append(Step(rest[:at], message))
    return Conversation(f"{policy['content']}\n{SECRET}", [steps for steps in questions if steps], tools)


def wishes(said: Message) -> dict[str, str]:
    """The headers by which the embedded provider says what the agent has said."""
    if said.get("tool_calls"):
        return {"x-emulator-tool-call": said["tool_calls"][0]["function"]["name"]}
    text = " ".join(str(said["content"]).encode("ascii", "replace").decode().split())
    return {"x-emulator-output-text": f"{text[:200]} {SECRET}"}
