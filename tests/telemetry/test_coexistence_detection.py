"""Other instrumentations of openai are detected by what replaces openai's methods, without their code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import httpx2
import openai
import pytest
from openai.resources.chat.completions import Completions
from openai.resources.responses import Responses
from opentelemetry import context
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context
from opentelemetry.trace import get_current_span, set_span_in_context
from wrapt import FunctionWrapper

import fastlane
from tests.telemetry.conftest import Listening, attributes_of

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Name a river."}]}
HTTP = "opentelemetry.instrumentation.httpx"

Recorded = Callable[[], tuple[int, int]]
"""Makes a call; returns the spans and the calls in generic metrics that fastlane records of it."""


@pytest.fixture
def client(arguments: dict[str, Any]) -> Iterator[fastlane.OpenAI]:
    with fastlane.OpenAI(**arguments) as client:
        yield client


@pytest.fixture
def recorded(client: fastlane.OpenAI, listening: Listening) -> Recorded:
    captured = listening()

    def counted() -> int:
        return sum(point.count for point in captured.points().get("gen_ai.client.operation.duration", ()))

    def of_a_call() -> tuple[int, int]:
        captured.clear()
        before = counted()
        client.chat.completions.create(**ASK)
        return len(captured.named("chat")), counted() - before

    assert of_a_call() == (1, 1)  # without any tool
    return of_a_call


def written_in(module: str, see: Callable[[], object] = lambda: None) -> Any:
    """A wrapper as wrapt calls it, written in a module that is empty."""

    def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        see()
        return wrapped(*args, **kwargs)

    return FunctionType(wrapper.__code__, {"__name__": module}, "wrapper", None, wrapper.__closure__)


def replace(monkeypatch: pytest.MonkeyPatch, module: str, owner: type[Any] = Completions, name: str = "create") -> None:
    """Replace a method by a wrapper, as instrumentations do."""
    parts = module.split(".")
    for package in (".".join(parts[:count]) for count in range(1, len(parts) + 1)):
        monkeypatch.setitem(sys.modules, package, sys.modules.get(package) or ModuleType(package))
    monkeypatch.setattr(owner, name, FunctionWrapper(getattr(owner, name), written_in(module)))


@contextmanager
def attached(values: Context) -> Iterator[None]:
    token = context.attach(values)
    yield
    context.detach(token)


@pytest.mark.parametrize(
    ("replaced", "spans", "generic"),
    [
        (["opentelemetry.instrumentation.genai.openai"], 0, 0),
        (["opentelemetry.instrumentation.genai.openai.patch"], 0, 0),
        (["opentelemetry.instrumentation.openai_v2.patch"], 0, 0),
        (["opentelemetry.instrumentation.openai.utils"], 0, 0),
        (["langfuse.openai"], 0, 1),  # which records no metrics
        (["openlit.instrumentation.openai.openai"], 0, 0),
        (["openlit.instrumentation.openai.openai", "an_application.decorators"], 0, 0),
        (["langfuse.openai", "openlit.instrumentation.openai.openai"], 0, 0),
        (["an_application.decorators"], 1, 1),
        (["opentelemetry.instrumentation.openai_something_else"], 1, 1),
    ],
)
@pytest.mark.parametrize("owner", [Completions, Responses])
def test_tool_is_detected_by_its_wrapper_module(
    recorded: Recorded,
    monkeypatch: pytest.MonkeyPatch,
    owner: type[Any],
    replaced: list[str],
    spans: int,
    generic: int,
) -> None:
    for module in replaced:
        replace(monkeypatch, module, owner)
    assert recorded() == (spans, generic)


@pytest.mark.parametrize("of", ["all clients", "this client"])
def test_logfire_is_detected_by_its_marker(
    recorded: Recorded, client: fastlane.OpenAI, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    monkeypatch.setitem(sys.modules, "logfire", ModuleType("logfire"))
    marked = openai.OpenAI if of == "all clients" else client
    monkeypatch.setattr(marked, "_is_instrumented_by_logfire", True, raising=False)
    assert recorded() == (0, 0)


# The context.


@pytest.mark.parametrize(
    "key",
    [
        _SUPPRESS_INSTRUMENTATION_KEY,
        "suppress_instrumentation",
        "suppress_language_model_instrumentation",
        "opentelemetry.genai.client.inference.context",  # of a library that has made the span itself
    ],
    ids=["own key", "plain key", "language models", "inference"],
)
def test_call_in_a_suppressing_context_adds_no_span(recorded: Recorded, key: str) -> None:
    with attached(Context({key: True})):
        assert recorded()[0] == 0
    assert recorded()[0] == 1


def test_span_of_a_known_tool_is_used_for_the_call(client: fastlane.OpenAI, listening: Listening) -> None:
    captured = listening()

    def ask() -> int:
        client.chat.completions.create(**ASK)
        return len(captured.named("chat"))

    theirs, another = (
        captured.tracer_provider.get_tracer(f"openinference.instrumentation.{name}").start_span(name)
        for name in ("openai", "langchain")
    )
    with attached(set_span_in_context(another)):
        assert ask() == 1
        suppressed = Context({**context.get_current(), _SUPPRESS_INSTRUMENTATION_KEY: True})
        with attached(set_span_in_context(theirs, suppressed)):
            assert ask() == 1
        theirs.end()
        with attached(set_span_in_context(theirs)):
            assert ask() == 2
    another.end()
    assert attributes_of(captured.the("openai"))["fastlane.attempt.count"] == 1
    assert captured.below(captured.the("langchain")) == ["chat m"]


# The HTTP client.


def test_instrumentation_of_a_mounted_transport_finds_the_call(
    arguments: dict[str, Any], listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured, seen = listening(), list[Any]()
    monkeypatch.setitem(sys.modules, HTTP, ModuleType(HTTP))
    theirs = written_in(HTTP, lambda: seen.append(get_current_span()))
    mounted: Any = httpx2.HTTPTransport()
    with (
        httpx2.Client(mounts={"all://": mounted}) as http,
        fastlane.OpenAI(**arguments, http_client=http) as client,
    ):
        monkeypatch.setattr(mounted, "handle_request", FunctionWrapper(mounted.handle_request, theirs))
        client.chat.completions.create(**ASK)
    assert [span.get_span_context() for span in seen] == [captured.the("chat").context]
