"""The application that is driven: an airline's agent, which answers customers through fastlane over a real connection.

    python -m scripts.backends application NOTES
    python -m scripts.backends application NOTES --metrics-port 9464

Traces go where OTEL_* variables say. With --metrics-port it is an application with a provider of metrics of its own,
which Prometheus scrapes, and two arms of an experiment run beside each other; it ends when its standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import openai
from pydantic import BaseModel, Field

import fastlane
from benchmarks._conversation import conversation, tools
from benchmarks._provider import providers
from fastlane import BoundedOutput, CallRecord, Connection, Hedging, PromptCache, telemetry
from fastlane.emulator import Emulator, preset
from fastlane.prompts import Prompt

MODEL = "gpt-4.1-mini"
"""A name that backends know a price of."""
ACTION = "answer airline customer"
EXPERIMENT, AS_WRITTEN, LAID_OUT = "prompt layout", "as written", "laid out"
ENOUGH_TO_HEDGE = 20
"""Streams after which `Hedging` knows what is late."""
SECRET = "passport-of-nobody-4711"
"""Is in everything that could leak: prompts, tools, answers, headers, the key."""
IN_KEYS, IN_HEADERS, IN_QUERIES = "key", "header", "query"
"""How secrets begin that must never be exported, not even with prompts enabled."""
_USAGE: Any = {"include_usage": True}
_Message = dict[str, Any]


# What the application tells the tests


@dataclass(frozen=True, slots=True)
class NotedAction:
    """A user action that is over."""

    name: str
    duration_s: float
    call_ids: tuple[str, ...]
    """Of its calls, those of nested actions included."""


@dataclass(slots=True)
class Notes:
    """What one run did: its own records, to compare what a backend shows with."""

    calls: list[CallRecord] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    """Call ids of what went otherwise than usual: "cold", "retried", "hedged", ..."""
    actions: list[NotedAction] = field(default_factory=list)
    arms: dict[str, list[CallRecord]] = field(default_factory=dict)
    """The calls of each arm of the experiment, where there was one."""

    def call(self, record: CallRecord | None, label: str | None = None) -> None:
        """Note a call that is over."""
        assert record is not None, "the client has made no call"
        self.calls.append(record)
        if label is not None:
            self.labels[label] = record.call_id

    def action(self, action: fastlane.user_action) -> None:
        """Note an action that is over."""
        assert action.application_end_to_end_s is not None
        call_ids = tuple(record.call_id for record in action.calls)
        self.actions.append(NotedAction(action.name, action.application_end_to_end_s, call_ids))

    def add(self, others: Notes) -> None:
        """Take over what another part of the application has noted."""
        self.calls += others.calls
        self.labels |= others.labels
        self.actions += others.actions
        self.arms |= others.arms

    def labelled(self, label: str) -> CallRecord:
        """Return the call of this label."""
        (found,) = (record for record in self.calls if record.call_id == self.labels[label])
        return found


def read(file: Path) -> Notes:
    """Return the notes of a process that this one has started."""
    notes: Notes = pickle.loads(file.read_bytes())
    return notes


# What its customers ask

# The first is short enough for a picture. All of them hold 22 answers: a second attempt of a late call needs 20 before.
_LENGTHS = (10, 22, 22, 22, 22)


class Step(NamedTuple):
    """One request to the agent for its next message."""

    history: list[_Message]
    """Without the policy."""
    reply: _Message
    """Its reply, or the tool that it called."""


class Conversation(NamedTuple):
    """One conversation."""

    policy: str
    questions: list[list[Step]]
    """For each message of the customer, the steps to its answer."""
    tools: list[Any]


def _cut(messages: Sequence[_Message], tools: list[Any]) -> Conversation:
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


def _conversations() -> list[Conversation]:
    definitions = tools()
    definitions[0]["function"]["description"] += f" {SECRET}"
    return [_cut(conversation(messages), definitions) for messages in _LENGTHS]


def _wishes(reply: _Message) -> dict[str, str]:
    """Return the headers that make the embedded provider repeat the agent's reply."""
    if reply.get("tool_calls"):
        return {"x-emulator-tool-call": reply["tool_calls"][0]["function"]["name"]}
    text = " ".join(str(reply["content"]).encode("ascii", "replace").decode().split())
    return {"x-emulator-output-text": f"{text[:200]} {SECRET}"}


# The agent


class Ticket(BaseModel):
    """What is filed of a conversation."""

    topic: Literal["booking", "baggage", "refund", "other"]
    urgency: int = Field(ge=1, le=5)


class _Agent:
    def __init__(self, emulator: Emulator, notes: Notes, *, arm: str = LAID_OUT) -> None:
        self.notes = notes
        self._arm = arm
        # By name, so that there is a name to look up.
        self.options: dict[str, Any] = {
            "base_url": emulator.base_url.replace("127.0.0.1", "localhost"),
            "api_key": f"{IN_KEYS}-{SECRET}",
            "default_headers": {"x-customer": f"{IN_HEADERS}-{SECRET}"},
            "default_query": {"customer": f"{IN_QUERIES}-{SECRET}"},
        }
        plays: list[fastlane.Play] = [Connection(), PromptCache()]
        # Of three clients, because a call that may be hedged or stopped is always streamed underneath.
        self.client = fastlane.OpenAI(only_plays=plays, **self.options)
        self.hedging = fastlane.OpenAI(only_plays=[*plays, Hedging(budget=1.0)], **self.options)
        self.bounded = fastlane.OpenAI(only_plays=[*plays, BoundedOutput()], **self.options)
        self._clock = 0

    def close(self) -> None:
        for client in (self.client, self.hedging, self.bounded):
            client.close()

    @contextmanager
    def action(self, name: str) -> Iterator[None]:
        action = fastlane.user_action(name)
        try:
            with action:
                yield
        finally:
            self.notes.action(action)

    def warm_up(self) -> None:
        """Make the first call of the process, which imports what others find imported, on a connection of its own."""
        messages: Any = [{"role": "user", "content": SECRET}]
        # Clients with equal settings share their connections: this one differs.
        plays = [Connection(idle_s=298.0), PromptCache(), Hedging(budget=1.0)]
        with fastlane.OpenAI(only_plays=plays, **self.options) as client, self.action("warm up"):
            self.stream(client, model=MODEL, messages=messages)

    def talk(self, conversation: Conversation) -> None:
        """Answer one customer's questions, one after the other."""
        with self.action("airline conversation"):
            for steps in conversation.questions:
                with self.action(ACTION):
                    for step in steps:
                        self.step(conversation, step)

    def step(self, conversation: Conversation, step: Step) -> None:
        """Ask for the agent's next message: for a tool's name at once, for words as a stream."""
        arguments = {**self.prompt(conversation, step), "model": MODEL, "extra_headers": _wishes(step.reply)}
        if step.reply.get("tool_calls"):
            self.client.chat.completions.create(**arguments)
            self.notes.call(self.client.last_call)
        else:
            self.stream(self.hedging, **arguments)

    def stream(self, client: fastlane.OpenAI, label: str | None = None, **arguments: Any) -> None:
        """Read a streamed answer to its end, and note the call."""
        for _ in client.chat.completions.create(stream=True, stream_options=_USAGE, **arguments):
            pass
        self.notes.call(client.last_call, label)

    def prompt(self, conversation: Conversation, step: Step) -> dict[str, Any]:
        """The arguments of a call that say what the model is to read."""
        self._clock += 1
        now = f"The current time is 2024-05-15 15:00:{self._clock % 60:02d} EST."
        if self._arm == AS_WRITTEN:
            system = {"role": "system", "content": f"{now}\n\n{conversation.policy}"}
            return {"messages": [system, *step.history], "tools": conversation.tools}
        prompt = Prompt(stable=conversation.policy, session=step.history, volatile=now)
        return {"messages": prompt, "tools": conversation.tools}


def _what_is_unusual(agent: _Agent, conversation: Conversation) -> None:
    """A call that is cold, one that is tried again, one that is hedged, and more that are otherwise than most."""
    question = conversation.questions[0]
    arguments = {**agent.prompt(conversation, question[-1]), "model": MODEL}
    wishes = _wishes(question[-1].reply)
    notes = agent.notes

    # Clients with equal settings share their connections: this one differs.
    cold = fastlane.OpenAI(only_plays=[Connection(idle_s=299.0)], **agent.options)
    with cold, agent.action("answer a new customer"):
        agent.stream(cold, "cold", extra_headers=wishes, **arguments)
    faults = {"retried": "status=429;retry_after=0.1;times=1"}
    if sum(record.stream for record in notes.calls) > ENOUGH_TO_HEDGE:
        faults["hedged"] = "hang=5;times=1"
    for label, fault in faults.items():
        with agent.action(f"answer airline customer ({label})"):
            headers = {**wishes, "x-emulator-fault": fault, "x-emulator-tag": label}
            agent.stream(agent.hedging, label, extra_headers=headers, **arguments)
    with agent.action("file a ticket"):
        agent.bounded.chat.completions.parse(
            response_format=Ticket, model=MODEL, messages=[{"role": "user", "content": SECRET}]
        )
        notes.call(agent.bounded.last_call, "parsed")
    with agent.action("look it up"):
        agent.client.responses.create(model=MODEL, instructions=conversation.policy, input=SECRET)
        notes.call(agent.client.last_call, "response")
    with agent.action("hang up"):
        stream = agent.client.chat.completions.create(stream=True, extra_headers=wishes, **arguments)
        next(iter(stream))
        stream.close()
        notes.call(agent.client.last_call, "closed")
    try:
        with agent.action("call without permission"):
            agent.client.chat.completions.create(extra_headers={"x-emulator-fault": "status=401"}, **arguments)
    except openai.AuthenticationError:
        notes.call(agent.client.last_call, "failed")
    asyncio.run(_asynchronously(agent, arguments, wishes))
    # Outside of any action: a trace of its own.
    agent.client.chat.completions.create(extra_headers=wishes, **arguments)
    notes.call(agent.client.last_call, "alone")


async def _asynchronously(agent: _Agent, arguments: dict[str, Any], wishes: dict[str, str]) -> None:
    async with fastlane.AsyncOpenAI(only_plays=[Connection()], **agent.options) as client:
        async with fastlane.user_action("answer two customers") as action:
            await asyncio.gather(*(_stream(client, arguments, wishes) for _ in range(2)))
        agent.notes.action(action)
        for number, record in enumerate(action.calls):
            agent.notes.call(record, f"beside {number}")


async def _stream(client: fastlane.AsyncOpenAI, arguments: dict[str, Any], wishes: dict[str, str]) -> None:
    async for _ in await client.chat.completions.create(
        stream=True, stream_options=_USAGE, extra_headers=wishes, **arguments
    ):
        pass


def traced(notes: Notes, talks: list[Conversation]) -> None:
    """Hold all conversations, one after the other, and send their spans."""
    os.environ["OTEL_SERVICE_NAME"] = "airline-agent"
    telling = telemetry.configure()
    with providers(1, model=preset("bench")) as (emulator,):
        agent = _Agent(emulator, notes)
        agent.warm_up()
        for talk in talks:
            agent.talk(talk)
        _what_is_unusual(agent, talks[0])
        agent.close()
    # MLflow's first traces take ten seconds, and the end of a process does not wait for so long.
    assert telling.force_flush(60.0), "what was not sent yet could not be sent within a minute"


def measured(notes: Notes, talks: list[Conversation], port: int) -> None:
    """Hold the conversations in both arms at once, and let Prometheus read what that came to."""
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from opentelemetry.metrics import set_meter_provider
    from opentelemetry.sdk.metrics import MeterProvider
    from prometheus_client import start_http_server

    set_meter_provider(MeterProvider(metric_readers=[PrometheusMetricReader()]))
    start_http_server(port, addr="127.0.0.1")

    def run(arm: str) -> Notes:
        mine = Notes()
        agent = _Agent(emulator, mine, arm=arm)
        with telemetry.experiment(EXPERIMENT, arm):
            for talk in talks:
                agent.talk(talk)
        mine.arms[arm] = list(mine.calls)
        if arm == LAID_OUT:
            _what_is_unusual(agent, talks[0])
        agent.close()
        return mine

    with providers(1, model=preset("bench")) as (emulator,), ThreadPoolExecutor() as pool:
        for mine in pool.map(run, (AS_WRITTEN, LAID_OUT)):
            notes.add(mine)


def main(arguments: Sequence[str]) -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("notes", type=Path, help="file for what the application knows of its calls")
    parser.add_argument("--metrics-port", type=int, help="port on which Prometheus finds the metrics")
    parser.add_argument("--count", type=int, help="hold no more conversations than this")
    asked = parser.parse_args(arguments)
    talks = _conversations()[: asked.count]
    notes = Notes()
    if asked.metrics_port is None:
        traced(notes, talks)
    else:
        measured(notes, talks, asked.metrics_port)
    asked.notes.write_bytes(pickle.dumps(notes))
    if asked.metrics_port is not None:
        print("done", flush=True)
        sys.stdin.read()
