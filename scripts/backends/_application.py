"""The application that is driven: an airline's agent, which answers customers through fastlane over a real connection.

    python -m scripts.backends._application NOTES
    python -m scripts.backends._application NOTES --metrics-port 9464

Traces go where OTEL_* variables say. With --metrics-port it is an application with a provider of metrics of its own,
which Prometheus scrapes, and two arms of an experiment run beside each other; it ends when its standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import openai
from pydantic import BaseModel, Field

import fastlane
from benchmarks._provider import providers
from fastlane import BoundedOutput, Connection, Hedging, PromptCache, telemetry
from fastlane.emulator import Emulator, preset
from fastlane.prompts import Prompt
from scripts.backends._conversations import SECRET, Conversation, Step, conversations, wishes
from scripts.backends._notes import Notes

MODEL = "gpt-4.1-mini"
"""A name that backends know a price of."""
ACTION = "answer airline customer"
EXPERIMENT, AS_WRITTEN, LAID_OUT = "prompt layout", "as written", "laid out"
ENOUGH_TO_HEDGE = 20
"""Streams after which `Hedging` knows what is late."""
IN_KEYS, IN_HEADERS, IN_QUERIES = "key", "header", "query"
"""How secrets begin that nobody may see, not even where prompts are asked for."""
_NOW = "The current time is 2024-05-15 15:00:{:02d} EST."
_USAGE: Any = {"include_usage": True}


class Ticket(BaseModel):
    """What is filed of a conversation."""

    topic: Literal["booking", "baggage", "refund", "other"]
    urgency: int = Field(ge=1, le=5)


class _Agent:
    """An agent with a client of its own."""

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
            for _ in client.chat.completions.create(model=MODEL, messages=messages, stream=True, stream_options=_USAGE):
                pass
            self.notes.call(client.last_call)

    def talk(self, conversation: Conversation) -> None:
        """Answer one customer's questions, one after the other."""
        with self.action("airline conversation"):
            for steps in conversation.questions:
                with self.action(ACTION):
                    for step in steps:
                        self.step(conversation, step)

    def step(self, conversation: Conversation, step: Step) -> None:
        """Ask for the agent's next message: for a tool's name at once, for words as a stream."""
        arguments = {**self.prompt(conversation, step), "model": MODEL, "extra_headers": wishes(step.said)}
        if step.said.get("tool_calls"):
            self.client.chat.completions.create(**arguments)
            self.notes.call(self.client.last_call)
        else:
            for _ in self.hedging.chat.completions.create(stream=True, stream_options=_USAGE, **arguments):
                pass
            self.notes.call(self.hedging.last_call)

    def prompt(self, conversation: Conversation, step: Step) -> dict[str, Any]:
        """The arguments of a call that say what the model is to read."""
        self._clock += 1
        now = _NOW.format(self._clock % 60)
        if self._arm == AS_WRITTEN:
            system = {"role": "system", "content": f"{now}\n\n{conversation.policy}"}
            return {"messages": [system, *step.history], "tools": conversation.tools}
        prompt = Prompt(stable=conversation.policy, session=step.history, volatile=now)
        return {"messages": prompt, "tools": conversation.tools}


def _what_is_unusual(agent: _Agent, conversation: Conversation) -> None:
    """A call that is cold, one that is tried again, one that is hedged, and more that are otherwise than most."""
    question = conversation.questions[0]
    arguments = {**agent.prompt(conversation, question[-1]), "model": MODEL}
    said = wishes(question[-1].said)
    notes = agent.notes

    # Clients with equal settings share their connections: this one differs.
    cold = fastlane.OpenAI(only_plays=[Connection(idle_s=299.0)], **agent.options)
    with cold, agent.action("answer a new customer"):
        for _ in cold.chat.completions.create(stream=True, stream_options=_USAGE, extra_headers=said, **arguments):
            pass
        notes.call(cold.last_call, "cold")
    faults = {"retried": "status=429;retry_after=0.1;times=1"}
    if sum(record.stream for record in notes.calls) > ENOUGH_TO_HEDGE:
        faults["hedged"] = "hang=5;times=1"
    for label, fault in faults.items():
        with agent.action(f"answer airline customer ({label})"):
            headers = {**said, "x-emulator-fault": fault, "x-emulator-tag": label}
            for _ in agent.hedging.chat.completions.create(
                stream=True, stream_options=_USAGE, extra_headers=headers, **arguments
            ):
                pass
            notes.call(agent.hedging.last_call, label)
    with agent.action("file a ticket"):
        agent.bounded.chat.completions.parse(
            response_format=Ticket, model=MODEL, messages=[{"role": "user", "content": SECRET}]
        )
        notes.call(agent.bounded.last_call, "parsed")
    with agent.action("look it up"):
        agent.client.responses.create(model=MODEL, instructions=conversation.policy, input=SECRET)
        notes.call(agent.client.last_call, "response")
    with agent.action("hang up"):
        stream = agent.client.chat.completions.create(stream=True, extra_headers=said, **arguments)
        next(iter(stream))
        stream.close()
        notes.call(agent.client.last_call, "closed")
    try:
        with agent.action("call without permission"):
            agent.client.chat.completions.create(extra_headers={"x-emulator-fault": "status=401"}, **arguments)
    except openai.AuthenticationError:
        notes.call(agent.client.last_call, "failed")
    asyncio.run(_asynchronously(agent, arguments, said))
    # Outside of any action: a trace of its own.
    agent.client.chat.completions.create(extra_headers=said, **arguments)
    notes.call(agent.client.last_call, "alone")


async def _asynchronously(agent: _Agent, arguments: dict[str, Any], said: dict[str, str]) -> None:
    async with fastlane.AsyncOpenAI(only_plays=[Connection()], **agent.options) as client:
        async with fastlane.user_action("answer two customers") as action:
            await asyncio.gather(*(_stream(client, arguments, said) for _ in range(2)))
        agent.notes.action(action)
        for number, record in enumerate(action.calls):
            agent.notes.call(record, f"beside {number}")


async def _stream(client: fastlane.AsyncOpenAI, arguments: dict[str, Any], said: dict[str, str]) -> None:
    async for _ in await client.chat.completions.create(
        stream=True, stream_options=_USAGE, extra_headers=said, **arguments
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


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("notes", type=Path, help="file for what the application knows of its calls")
    parser.add_argument("--metrics-port", type=int, help="port on which Prometheus finds the metrics")
    parser.add_argument("--count", type=int, help="hold no more conversations than this")
    asked = parser.parse_args()
    talks = conversations()[: asked.count]
    notes = Notes()
    if asked.metrics_port is None:
        traced(notes, talks)
    else:
        measured(notes, talks, asked.metrics_port)
    notes.write(asked.notes)
    if asked.metrics_port is not None:
        print("done", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
