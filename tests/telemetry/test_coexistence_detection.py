"""Other instrumentations of openai are detected by what replaces openai's methods, without their code."""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import httpx2
import openai
import pytest
from openai.resources.chat.completions import Completions
from openai.resources.responses import Responses
from opentelemetry import context
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import set_span_in_context
from wrapt import FunctionWrapper

import fastlane
from fastlane.compat.requests import Issued
from fastlane.telemetry import TelemetrySettings, settings as telemetry_settings
from fastlane.telemetry.coexistence import (
    NO_TOOLS,
    Standing,
    attached,
    is_http_instrumented,
    other_tools,
    other_tools_span,
    records_metrics,
    standing_of,
    without_suppression,
)

Replace = Callable[..., None]


@pytest.fixture(autouse=True)
def settings() -> Iterator[TelemetrySettings]:
    made = TelemetrySettings(tracer_provider=TracerProvider())
    telemetry_settings.use(made)
    other_tools()  # which sees that the modules of the test before are gone
    yield made
    telemetry_settings.use(None)


@pytest.fixture
def client() -> Iterator[fastlane.OpenAI]:
    with fastlane.OpenAI(api_key="sk-test") as client:
        yield client


def written_in(module: str) -> Any:
    """A wrapper as wrapt calls it, written in a module that is empty."""

    def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        return wrapped(*args, **kwargs)

    return FunctionType(wrapper.__code__, {"__name__": module}, "wrapper")


@pytest.fixture
def replace(monkeypatch: pytest.MonkeyPatch) -> Replace:
    """Replace a method by a wrapper, as instrumentations do."""

    def replace(module: str, owner: type[Any] = Completions, name: str = "create") -> None:
        parts = module.split(".")
        for package in (".".join(parts[:count]) for count in range(1, len(parts) + 1)):
            monkeypatch.setitem(sys.modules, package, sys.modules.get(package) or ModuleType(package))
        monkeypatch.setattr(owner, name, FunctionWrapper(getattr(owner, name), written_in(module)))

    return replace


def test_no_tool_is_detected_without_instrumentation(client: fastlane.OpenAI) -> None:
    assert other_tools(client) == NO_TOOLS
    assert standing_of(None, client) == Standing("own", Context())


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("opentelemetry.instrumentation.genai.openai", "genai-openai"),
        ("opentelemetry.instrumentation.genai.openai.patch", "genai-openai"),
        ("opentelemetry.instrumentation.openai_v2.patch", "openai-v2"),
        ("opentelemetry.instrumentation.openai.utils", "openllmetry"),
        ("langfuse.openai", "langfuse"),
        ("openlit.instrumentation.openai.openai", "openlit"),
    ],
)
def test_tool_is_detected_by_its_wrapper_module(
    replace: Replace, client: fastlane.OpenAI, module: str, name: str
) -> None:
    replace(module, Responses)
    assert other_tools(client) == {name}
    assert standing_of(Issued(0, is_direct=True), client).mode == "defer"


def test_openinference_is_detected_at_request_wrapper(replace: Replace, client: fastlane.OpenAI) -> None:
    replace("openinference.instrumentation.openai._request", openai.AsyncOpenAI, "request")
    assert other_tools(client) == {"openinference"}
    assert standing_of(None, client).mode == "defer"
    assert not records_metrics(other_tools(client))


def test_logfire_is_detected_by_its_marker(client: fastlane.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "logfire", ModuleType("logfire"))
    monkeypatch.setitem(client.__dict__, "_is_instrumented_by_logfire", True)
    assert other_tools(client) == {"logfire"}
    assert other_tools() == set()
    monkeypatch.delitem(client.__dict__, "_is_instrumented_by_logfire")

    monkeypatch.setattr(openai.OpenAI, "_is_instrumented_by_logfire", True, raising=False)
    assert other_tools() == {"logfire"}
    assert standing_of(None, client).mode == "defer"


def test_all_of_several_layers_are_found_and_no_others(replace: Replace, client: fastlane.OpenAI) -> None:
    replace("langfuse.openai")
    replace("an_application.decorators")
    replace("openlit.instrumentation.openai.openai")
    replace("opentelemetry.instrumentation.openai_something_else")
    assert other_tools(client) == {"langfuse", "openlit"}


def test_decorated_create_is_not_taken_for_a_tool(replace: Replace, client: fastlane.OpenAI) -> None:
    replace("an_application.decorators")
    assert other_tools(client) == NO_TOOLS
    assert standing_of(Issued(0, is_direct=True), client).mode == "own"


def test_tools_that_record_metrics_are_known(replace: Replace, client: fastlane.OpenAI) -> None:
    replace("langfuse.openai")
    assert not records_metrics(other_tools(client))
    replace("opentelemetry.instrumentation.openai.utils")
    assert records_metrics(other_tools(client))


# The context.


def test_suppressed_instrumentation_stays_suppressed(client: fastlane.OpenAI) -> None:
    for key in (_SUPPRESS_INSTRUMENTATION_KEY, "suppress_instrumentation", "suppress_language_model_instrumentation"):
        with attached(Context({key: True})):
            assert standing_of(None, client).mode == "silent"
            assert standing_of(Issued(0, is_direct=True), client).mode == "silent"
    assert standing_of(None, client).mode == "own"


def test_call_inside_an_instrumented_library_adds_no_span(client: fastlane.OpenAI) -> None:
    with attached(Context({"opentelemetry.genai.client.inference.context": object()})):
        assert standing_of(None, client).mode == "defer"


def test_span_of_a_known_tool_is_used_for_the_call(client: fastlane.OpenAI, settings: TelemetrySettings) -> None:
    theirs = settings.tracer_provider.get_tracer("openinference.instrumentation.openai").start_span("ChatCompletion")
    another = settings.tracer_provider.get_tracer("openinference.instrumentation.langchain").start_span("chain")
    with attached(set_span_in_context(another)):
        assert other_tools_span() is None
        assert standing_of(None, client).mode == "own"
        suppressed = Context({**context.get_current(), _SUPPRESS_INSTRUMENTATION_KEY: True, "a": 1})
        with attached(set_span_in_context(theirs, suppressed)):
            found = standing_of(None, client)
            assert (found.mode, found.span, found.suppresses) == ("defer", theirs, True)
            assert found.context == without_suppression(found.context)
            assert found.context["a"] == 1
            theirs.end()
            assert other_tools_span() is None


def test_detaching_in_another_context_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    around = attached(Context({"a": 1}))
    contextvars.copy_context().run(around.__enter__)
    around.__exit__(None, None, None)
    around.__exit__(None, None, None)
    assert context.get_current() == {}
    assert caplog.records == []


# The HTTP client.


def test_instrumented_http_client_is_known(client: fastlane.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = written_in("opentelemetry.instrumentation.httpx")
    assert not is_http_instrumented(client._client)
    with httpx2.Client() as http, httpx2.Client(mounts={"all://": httpx2.HTTPTransport()}) as mounted:
        assert not is_http_instrumented(http)
        transport = mounted._mounts[next(iter(mounted._mounts))]
        assert transport is not None
        monkeypatch.setattr(transport, "handle_request", FunctionWrapper(transport.handle_request, theirs))
        assert is_http_instrumented(mounted)
        assert not is_http_instrumented(http)
        replaced = FunctionWrapper(httpx2.HTTPTransport.handle_request, theirs)
        monkeypatch.setattr(httpx2.HTTPTransport, "handle_request", replaced)
        assert is_http_instrumented(http)
        assert is_http_instrumented(client._client)
