"""A program for tests: calls beside other instrumentations of openai, and what each of them wrote of every call.

Instrumentations change openai for the whole process. Its argument is a list of steps, in JSON; it prints what came of
them, in JSON too.
"""

from __future__ import annotations

import contextvars
import gc
import json
import logging
import os
import sys
from typing import Any

from openai import DefaultAsyncHttpxClient, DefaultHttpxClient
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel

import fastlane
from fastlane.telemetry import TelemetrySettings, settings as telemetry_settings
from tests.waiting import Form, inner_of

FORM = Form("async")

PROMPT = "Where does the river Neckar end?"
MESSAGES: list[Any] = [{"role": "user", "content": PROMPT}]
CHAT: dict[str, Any] = {"model": "m", "messages": MESSAGES, "max_tokens": 6}
PARSED: dict[str, Any] = {"model": "m", "messages": MESSAGES}
ASKED: dict[str, Any] = {"model": "m", "input": PROMPT, "max_output_tokens": 400}


class Answer(BaseModel):
    sea: str


class Written(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        # What OpenLLMetry makes of openai's own marks for arguments that were not given.
        if "openai.Omit" not in line:
            self.lines.append(line)


# What the tests call, by these names, or `async_...`: with the asynchronous client.


def _text(chunks: list[Any]) -> list[Any]:
    return ["".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), len(chunks)]


def chat(client: Any) -> Any:
    return client.chat.completions.create(**CHAT).choices[0].message.content


def chat_stream(client: Any) -> Any:
    return _text(list(client.chat.completions.create(**CHAT, stream=True)))


def chat_closed(client: Any) -> Any:
    with client.chat.completions.create(**CHAT, stream=True) as stream:
        return [next(iter(stream)).model]


def chat_abandoned(client: Any) -> Any:
    stream = client.chat.completions.create(**CHAT, stream=True)
    model = next(iter(stream)).model
    del stream
    gc.collect()
    client.calls  # noqa: B018 - reports what was abandoned
    return model


def chat_helper(client: Any) -> Any:
    with client.chat.completions.stream(**CHAT) as stream:
        return [event.type for event in stream][-1]


def chat_parse(client: Any) -> Any:
    return repr(client.chat.completions.parse(**PARSED, response_format=Answer).choices[0].message.parsed)


def chat_raw(client: Any) -> Any:
    return client.chat.completions.with_raw_response.create(**CHAT).parse().choices[0].message.content


def response(client: Any) -> Any:
    return client.responses.create(**ASKED).output_text


def response_stream(client: Any) -> Any:
    return [event.type for event in client.responses.create(**ASKED, stream=True)]


def response_helper(client: Any) -> Any:
    with client.responses.stream(**ASKED) as stream:
        return [event.type for event in stream]


def response_parse(client: Any) -> Any:
    return repr(client.responses.parse(model="m", input=PROMPT, text_format=Answer).output_parsed)


def embeddings(client: Any) -> Any:
    return len(client.embeddings.create(model="m", input=PROMPT).data)


def completion(client: Any) -> Any:
    return client.completions.create(model="m", prompt=PROMPT, max_tokens=6).choices[0].text


def post(client: Any) -> Any:
    return client.post("/chat/completions", body=CHAT, cast_to=object)["choices"][0]["message"]["content"]


def given_up(client: Any) -> None:
    """A call of an asynchronous client whose coroutine is closed from outside, as a garbage collection does."""

    async def give_up() -> None:
        call = inner_of(client).chat.completions.create(**CHAT)
        contextvars.copy_context().run(call.send, None)
        call.close()

    FORM.run(give_up())


def instrumentor(name: str) -> Any:
    """One of the instrumentations as it is installed; imported where it is wanted only."""
    if name == "official":
        from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor

        return OpenAIInstrumentor()
    if name == "openllmetry":
        from opentelemetry.instrumentation.openai import OpenAIInstrumentor as OpenLLMetry

        return OpenLLMetry()
    if name == "openinference":
        from openinference.instrumentation.openai import OpenAIInstrumentor as OpenInference

        return OpenInference()
    from opentelemetry.instrumentation.httpx import HTTPX2ClientInstrumentor

    return HTTPX2ClientInstrumentor()


class Program:
    def __init__(self) -> None:
        self.spans = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        trace.set_tracer_provider(provider)
        since: dict[type, AggregationTemporality] = {
            Counter: AggregationTemporality.DELTA,
            Histogram: AggregationTemporality.DELTA,
        }
        self.reader = InMemoryMetricReader(preferred_temporality=since)
        metrics.set_meter_provider(MeterProvider([self.reader]))
        self.tracer = trace.get_tracer("application")
        self.logs = Written()
        logging.getLogger().addHandler(self.logs)
        self.clients: list[Any] = []
        self.came: dict[str, list[dict[str, Any]]] = {}
        self.phase = ""
        self.options: dict[str, Any] = {"api_key": "sk-test", "base_url": os.environ["COEXISTING_URL"]}

    def run(self, steps: list[dict[str, Any]]) -> dict[str, Any]:
        for step in steps:
            ((what, value),) = step.items()
            getattr(self, what)(value)
        self._close()
        FORM.close()
        return {"calls": self.came, "logs": self.logs.lines}

    # The steps.

    def then(self, phase: str) -> None:
        """What comes now, in the words of the test; settings are what they are by default again."""
        self.phase = phase
        telemetry_settings.use(TelemetrySettings())

    def environment(self, values: dict[str, str]) -> None:
        os.environ.update(values)
        telemetry_settings.use(None)

    def instrument(self, name: str) -> None:
        instrumentor(name).instrument()

    def uninstrument(self, name: str) -> None:
        instrumentor(name).uninstrument()

    def settings(self, values: dict[str, Any]) -> None:
        telemetry_settings.use(TelemetrySettings(**values))

    def client(self, http: str) -> None:
        self._close()
        http_clients: list[dict[str, Any]] = [{}, {}]
        if http == "stock":
            http_clients = [{"http_client": DefaultHttpxClient()}, {"http_client": DefaultAsyncHttpxClient()}]
        self.clients = [
            fastlane.OpenAI(**self.options, **http_clients[0]),
            FORM.make(fastlane, **self.options, **http_clients[1]),
        ]

    def calls(self, names: list[str]) -> None:
        for name in names:
            self._called(name)
            self._collect(name)

    def calls_inside(self, names: list[str]) -> None:
        for name in names:
            with self.tracer.start_as_current_span("around"):
                self._called(name)
            self._collect(name)

    # What they are made of.

    def _close(self) -> None:
        for client in self.clients:
            client.close()

    def _called(self, name: str) -> None:
        self.result: Any = None
        self.error: str | None = None
        call, client = globals()[name.removeprefix("async_")], self.clients[name.startswith("async_")]
        try:
            self.result = call(client)
        except Exception as error:  # noqa: BLE001 - the same without instrumentation, says the test
            self.error = type(error).__name__

    def _collect(self, name: str) -> None:
        measured = self.reader.get_metrics_data()
        counted: dict[str, list[str]] = {}
        for resource in measured.resource_metrics if measured is not None else ():
            for scope in resource.scope_metrics:
                names = [one.name for one in scope.metrics if any(True for _ in one.data.data_points)]
                counted[scope.scope.name] = sorted(names)
        finished = self.spans.get_finished_spans()
        by_id = {span.context.span_id: span for span in finished if span.context is not None}
        self.came.setdefault(self.phase, []).append(
            {
                "call": name,
                "spans": [_described(span, by_id) for span in finished],
                "metrics": counted,
                "result": self.result,
                "error": self.error,
            }
        )
        self.spans.clear()


def _described(span: ReadableSpan, by_id: dict[int, ReadableSpan]) -> dict[str, Any]:
    parent = None if span.parent is None else by_id.get(span.parent.span_id)
    attributes = dict(span.attributes or {})
    written = [attributes, *(dict(event.attributes or {}) for event in span.events)]
    scope = span.instrumentation_scope
    return {
        "scope": "" if scope is None else scope.name,
        "name": span.name,
        "parent": None if parent is None or parent.instrumentation_scope is None else parent.instrumentation_scope.name,
        "is_root": span.parent is None,
        "has_prompt": any("Neckar" in str(value) for values in written for value in values.values()),
        "fastlane": sorted(key for key in attributes if key.startswith("fastlane.")),
        "attributes": sorted(attributes),
        "protocol": attributes.get("network.protocol.version"),
    }


if __name__ == "__main__":
    logging.captureWarnings(capture=True)
    came = Program().run(json.loads(sys.argv[1]))
    print(json.dumps(came))  # noqa: T201 - what the test reads
