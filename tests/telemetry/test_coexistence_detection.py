"""Who else instruments openai is found out by what stands in the place of openai's methods, without their code."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from types import FunctionType
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
    around_replaced,
    attached,
    beneath_official,
    is_http_instrumented,
    mode_of,
    other_tools,
    other_tools_span,
    records_metrics,
    standing_of,
    without_suppression,
)
from fastlane.telemetry.settings import providers

Replace = Callable[..., None]


@pytest.fixture(autouse=True)
def settings() -> Iterator[TelemetrySettings]:
    made = TelemetrySettings(tracer_provider=TracerProvider())
    telemetry_settings.use(made)
    yield made
    telemetry_settings.use(None)


@pytest.fixture
def client() -> Iterator[fastlane.OpenAI]:
    with fastlane.OpenAI(api_key="sk-test") as client:
        yield client


def written_in(module: str) -> Any:
    """A wrapper as wrapt calls it, written in a module that is not there."""

    def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        return wrapped(*args, **kwargs)

    return FunctionType(wrapper.__code__, {"__name__": module}, "wrapper")


@pytest.fixture
def replace(monkeypatch: pytest.MonkeyPatch) -> Replace:
    """Put a wrapper in the place of a method, as instrumentations do."""

    def replace(module: str, owner: type[Any] = Completions, name: str = "create") -> None:
        monkeypatch.setattr(owner, name, FunctionWrapper(getattr(owner, name), written_in(module)))

    return replace


def test_nobody_is_there(client: fastlane.OpenAI) -> None:
    assert other_tools(client) == NO_TOOLS
    assert standing_of(None, providers(), client) == Standing("own", Context())


@pytest.mark.parametrize(
    ("module", "name", "whose"),
    [
        ("opentelemetry.instrumentation.genai.openai", "genai-openai", "own"),
        ("opentelemetry.instrumentation.genai.openai.patch", "genai-openai", "own"),
        ("opentelemetry.instrumentation.openai_v2.patch", "openai-v2", "defer"),
        ("opentelemetry.instrumentation.openai.utils", "openllmetry", "defer"),
        ("langfuse.openai", "langfuse", "defer"),
        ("openlit.instrumentation.openai.openai", "openlit", "defer"),
    ],
)
def test_a_stand_in_for_each_tool_is_found_by_the_module_of_its_wrapper(
    replace: Replace, client: fastlane.OpenAI, settings: TelemetrySettings, module: str, name: str, whose: str
) -> None:
    replace(module, Responses)
    assert other_tools(client) == {name}
    assert mode_of(settings, other_tools(client)) == whose
    assert mode_of(settings.with_changes({"coexistence": "own"}), other_tools(client)) == "own"
    assert mode_of(settings.with_changes({"coexistence": "defer"}), other_tools(client)) == "defer"


def test_a_stand_in_for_openinference_is_found_where_it_wraps_request(
    replace: Replace, client: fastlane.OpenAI, settings: TelemetrySettings
) -> None:
    replace("openinference.instrumentation.openai._request", openai.AsyncOpenAI, "request")
    assert other_tools(client) == {"openinference"}
    assert mode_of(settings, other_tools(client)) == "defer"
    assert not records_metrics(other_tools(client))


def test_a_stand_in_for_logfire_is_found_by_its_mark(
    client: fastlane.OpenAI, settings: TelemetrySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(client.__dict__, "_is_instrumented_by_logfire", True)
    assert other_tools(client) == {"logfire"}
    assert other_tools() == set()
    monkeypatch.delitem(client.__dict__, "_is_instrumented_by_logfire")

    monkeypatch.setattr(openai.OpenAI, "_is_instrumented_by_logfire", True, raising=False)
    assert other_tools() == {"logfire"}
    assert mode_of(settings, other_tools()) == "defer"


def test_all_of_several_layers_are_found_and_no_others(replace: Replace, client: fastlane.OpenAI) -> None:
    replace("langfuse.openai")
    replace("an_application.decorators")
    replace("openlit.instrumentation.openai.openai")
    replace("opentelemetry.instrumentation.openai_something_else")
    assert other_tools(client) == {"langfuse", "openlit"}


def test_a_decorator_of_the_applications_changes_nothing(
    replace: Replace, client: fastlane.OpenAI, settings: TelemetrySettings
) -> None:
    replace("an_application.decorators")
    assert other_tools(client) == NO_TOOLS
    issued = Issued(0, is_direct=True)
    before = context.get_current()
    with around_replaced(client, issued)[0]:
        assert context.get_current() is before
    assert issued.telemetry_context is None


def test_what_the_official_one_hands_to_a_hook_is_not_ours_to_take_away(
    replace: Replace, client: fastlane.OpenAI, settings: TelemetrySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace("opentelemetry.instrumentation.genai.openai")
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_COMPLETION_HOOK", "upload")
    assert mode_of(settings, other_tools(client)) == "defer"


def test_of_metrics_is_known_who_records_them(replace: Replace, client: fastlane.OpenAI) -> None:
    replace("langfuse.openai")
    assert not records_metrics(other_tools(client))
    replace("opentelemetry.instrumentation.openai.utils")
    assert records_metrics(other_tools(client))


# The context.


def test_what_an_application_suppresses_stays_so(client: fastlane.OpenAI) -> None:
    for key in (_SUPPRESS_INSTRUMENTATION_KEY, "suppress_instrumentation", "suppress_language_model_instrumentation"):
        with attached(Context({key: True})):
            assert standing_of(None, providers(), client).mode == "silent"
            assert standing_of(Issued(0, is_direct=True), providers(), client).mode == "silent"
    assert standing_of(None, providers(), client).mode == "own"


def test_a_call_inside_of_a_library_that_has_made_its_span_has_none_of_ours(client: fastlane.OpenAI) -> None:
    with attached(Context({"opentelemetry.genai.client.inference.context": object()})):
        assert standing_of(None, providers(), client).mode == "defer"


def test_a_span_of_a_known_tool_is_the_calls(client: fastlane.OpenAI, settings: TelemetrySettings) -> None:
    theirs = settings.tracer_provider.get_tracer("openinference.instrumentation.openai").start_span("ChatCompletion")
    another = settings.tracer_provider.get_tracer("openinference.instrumentation.langchain").start_span("chain")
    with attached(set_span_in_context(another)):
        assert other_tools_span() is None
        assert standing_of(None, providers(), client).mode == "own"
        suppressed = Context({**context.get_current(), _SUPPRESS_INSTRUMENTATION_KEY: True, "a": 1})
        with attached(set_span_in_context(theirs, suppressed)):
            found = standing_of(None, providers(), client)
            assert (found.mode, found.span, found.suppresses) == ("defer", theirs, True)
            assert found.context == without_suppression(found.context)
            assert found.context["a"] == 1
            theirs.end()
            assert other_tools_span() is None


def test_the_applications_context_is_kept_while_others_are_silenced(replace: Replace, client: fastlane.OpenAI) -> None:
    replace("opentelemetry.instrumentation.openai.utils")
    telemetry_settings.use(telemetry_settings.current().with_changes({"coexistence": "own"}))
    issued = Issued(0, is_direct=True)
    with attached(Context({"a": 1})):
        with around_replaced(client, issued)[0]:
            assert context.get_value("suppress_language_model_instrumentation")
            found = standing_of(issued, providers(), client)
            assert (found.mode, found.context, found.suppresses, found.inner) == ("own", {"a": 1}, True, None)
        assert context.get_current() == {"a": 1}


def test_nobody_is_silenced_for_spans_that_would_reach_nobody(replace: Replace, client: fastlane.OpenAI) -> None:
    replace("opentelemetry.instrumentation.genai.openai")
    assert standing_of(None, providers(), client).mode == "own"
    telemetry_settings.use(TelemetrySettings(meter_provider=object()))
    assert standing_of(None, providers(), client).mode == "defer"


def test_leaving_in_another_context_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    around = attached(Context({"a": 1}))
    contextvars.copy_context().run(around.__enter__)
    around.__exit__(None, None, None)
    around.__exit__(None, None, None)
    assert context.get_current() == {}
    assert caplog.records == []


def test_the_official_one_is_passed_by_where_it_stands_alone_before_a_method(replace: Replace) -> None:
    for name in ("create", "stream"):
        stock = Responses.__dict__[name]
        assert beneath_official(stock) is None
        replace("opentelemetry.instrumentation.genai.openai.patch_responses", Responses, name)
        assert beneath_official(Responses.__dict__[name]) is stock
        replace("an_application.decorators", Responses, name)
        assert beneath_official(Responses.__dict__[name]) is None


# The HTTP client.


def test_an_instrumented_http_client_is_known(client: fastlane.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
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
