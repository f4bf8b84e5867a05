"""Who else instruments openai is found out by what stands in the place of openai's methods, without their code."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType, SimpleNamespace
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
from fastlane.compat.context import Issued
from fastlane.telemetry import TelemetrySettings, _settings
from fastlane.telemetry._around import attached, entered, standing, stripped, their_span
from fastlane.telemetry._others import (
    Others,
    beneath_official,
    http_instrumented,
    known_scope,
    mode,
    others,
    shows_itself,
    unheard,
)

Replace = Callable[..., None]


@pytest.fixture(autouse=True)
def settings() -> Iterator[TelemetrySettings]:
    made = TelemetrySettings(tracer_provider=TracerProvider())
    _settings.use(made)
    yield made
    _settings.use(None)


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
    assert others(client) == Others()
    assert standing(None, client) == ("own", {}, None, Others(), False, None, True)


@pytest.mark.parametrize(
    ("module", "name", "whose"),
    [
        ("opentelemetry.instrumentation.genai.openai", "genai-openai", "own"),
        ("opentelemetry.instrumentation.genai.openai.patch", "genai-openai", "own"),
        ("opentelemetry.instrumentation.openai_v2.patch", "openai-v2", "defer"),
        ("opentelemetry.instrumentation.openai.utils", "openllmetry", "defer"),
        ("langfuse.openai", "langfuse", "defer"),
        ("openlit.instrumentation.openai.openai", "openlit", "defer"),
        ("mlflow.utils.autologging_utils.safety", "mlflow", "own"),
    ],
)
def test_a_stand_in_for_each_tool_is_found_by_the_module_of_its_wrapper(
    replace: Replace, client: fastlane.OpenAI, settings: TelemetrySettings, module: str, name: str, whose: str
) -> None:
    replace(module, Responses)
    assert others(client).names == {name}
    assert mode(settings, others(client)) == whose
    assert mode(settings.with_changes({"coexistence": "own"}), others(client)) == "own"
    assert mode(settings.with_changes({"coexistence": "defer"}), others(client)) == "defer"


def test_a_stand_in_for_openinference_is_found_where_it_wraps_request(
    replace: Replace, client: fastlane.OpenAI, settings: TelemetrySettings
) -> None:
    replace("openinference.instrumentation.openai._request", openai.AsyncOpenAI, "request")
    assert others(client).names == {"openinference"}
    assert mode(settings, others(client)) == "defer"
    assert not others(client).writes_metrics


def test_stand_ins_for_ddtrace_logfire_and_mlflow_are_found_by_the_marks_that_they_leave(
    client: fastlane.OpenAI, settings: TelemetrySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(openai.__dict__, "__datadog_patch", True)
    assert others(client).names == {"ddtrace"}
    assert mode(settings, others(client)) == "defer"
    monkeypatch.delitem(openai.__dict__, "__datadog_patch")

    monkeypatch.setitem(client.__dict__, "_is_instrumented_by_logfire", True)
    assert others(client).names == {"logfire"}
    assert others().names == set()
    monkeypatch.delitem(client.__dict__, "_is_instrumented_by_logfire")

    monkeypatch.setattr(openai.OpenAI, "_is_instrumented_by_logfire", True, raising=False)
    assert others().names == {"logfire"}
    assert mode(settings, others()) == "defer"
    monkeypatch.delattr(openai.OpenAI, "_is_instrumented_by_logfire")

    monkeypatch.setitem(__import__("sys").modules, "mlflow.openai", ModuleType("mlflow.openai"))
    assert others(client).names == {"mlflow"}
    assert mode(settings, others(client)) == "own"
    monkeypatch.setenv("MLFLOW_USE_DEFAULT_TRACER_PROVIDER", "false")
    assert mode(settings, others(client)) == "defer"


def test_all_of_several_layers_are_found_and_no_others(replace: Replace, client: fastlane.OpenAI) -> None:
    replace("langfuse.openai")
    replace("an_application.decorators")
    replace("openlit.instrumentation.openai.openai")
    replace("opentelemetry.instrumentation.openai_something_else")
    assert others(client).names == {"langfuse", "openlit"}
    assert unheard(others(client)) == {"langfuse", "openlit"}
    assert not shows_itself(others(client))


def test_a_decorator_of_the_applications_changes_nothing(
    replace: Replace, client: fastlane.OpenAI, settings: TelemetrySettings
) -> None:
    replace("an_application.decorators")
    assert others(client) == Others()
    issued = Issued(0, is_direct=True)
    before = context.get_current()
    with entered(client, issued)[0]:
        assert context.get_current() is before
    assert issued.telemetry_context is None


def test_what_the_official_one_hands_to_a_hook_is_not_ours_to_take_away(
    client: fastlane.OpenAI, settings: TelemetrySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrapping(handler: Any) -> Any:
        def inner(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            return handler

        def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            return inner(wrapped, instance, args, kwargs)

        its_globals = {"__name__": "opentelemetry.instrumentation.genai.openai"}
        return FunctionType(wrapper.__code__, its_globals, "wrapper", None, wrapper.__closure__)

    class _NoOpCompletionHook:
        pass

    for hook, whose in ((_NoOpCompletionHook(), "own"), (object(), "defer")):
        wrapper = wrapping(SimpleNamespace(_completion_hook=SimpleNamespace(_wrapped=hook)))
        with monkeypatch.context() as patched:
            patched.setattr(Completions, "parse", FunctionWrapper(Completions.parse, wrapper))
            assert mode(settings, others(client)) == whose
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_COMPLETION_HOOK", "upload")
    wrapper = wrapping(SimpleNamespace(_completion_hook=_NoOpCompletionHook()))
    monkeypatch.setattr(Completions, "parse", FunctionWrapper(Completions.parse, wrapper))
    assert mode(settings, others(client)) == "defer"


def test_of_metrics_is_known_who_records_them(
    replace: Replace, client: fastlane.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace("langfuse.openai")
    assert not others(client).writes_metrics
    replace("opentelemetry.instrumentation.openai.utils")
    assert others(client).writes_metrics
    monkeypatch.setenv("TRACELOOP_METRICS_ENABLED", "false")
    replace("langfuse.openai")  # so that it is looked at again
    assert not others(client).writes_metrics


def test_those_that_cannot_be_silenced_are_named_once(
    replace: Replace, client: fastlane.OpenAI, settings: TelemetrySettings, caplog: pytest.LogCaptureFixture
) -> None:
    replace("langfuse.openai")
    _settings.use(settings.with_changes({"coexistence": "own"}))
    with caplog.at_level(logging.WARNING, logger="fastlane"):
        for _ in range(2):
            assert standing(None, client).mode == "own"
    assert [record.getMessage().count("langfuse") for record in caplog.records] == [1]


# The context.


def test_what_an_application_suppresses_stays_so(client: fastlane.OpenAI) -> None:
    for key in (_SUPPRESS_INSTRUMENTATION_KEY, "suppress_instrumentation", "suppress_language_model_instrumentation"):
        with attached(Context({key: True})):
            assert standing(None, client).mode == "silent"
            assert standing(Issued(0, is_direct=True), client).mode == "silent"
    assert standing(None, client).mode == "own"


def test_a_call_inside_of_a_library_that_has_made_its_span_has_none_of_ours(client: fastlane.OpenAI) -> None:
    with attached(Context({"opentelemetry.genai.client.inference.context": object()})):
        assert standing(None, client).mode == "defer"


def test_a_span_of_a_known_tool_is_the_calls(client: fastlane.OpenAI, settings: TelemetrySettings) -> None:
    theirs = settings.tracer_provider.get_tracer("openinference.instrumentation.openai").start_span("ChatCompletion")
    another = settings.tracer_provider.get_tracer("openinference.instrumentation.langchain").start_span("chain")
    assert known_scope(theirs) == "openinference.instrumentation.openai"
    assert known_scope(another) is None
    with attached(set_span_in_context(another)):
        assert their_span() is None
        assert standing(None, client).mode == "own"
        suppressed = Context({**context.get_current(), _SUPPRESS_INSTRUMENTATION_KEY: True, "a": 1})
        with attached(set_span_in_context(theirs, suppressed)):
            found = standing(None, client)
            assert (found.mode, found.span, found.suppresses) == ("defer", theirs, True)
            assert found.context == stripped(found.context)
            assert found.context["a"] == 1
            theirs.end()
            assert their_span() is None


def test_the_applications_context_is_kept_while_others_are_silenced(replace: Replace, client: fastlane.OpenAI) -> None:
    replace("opentelemetry.instrumentation.openai.utils")
    _settings.use(_settings.current().with_changes({"coexistence": "own"}))
    issued = Issued(0, is_direct=True)
    with attached(Context({"a": 1})):
        with entered(client, issued)[0]:
            assert context.get_value("suppress_language_model_instrumentation")
            found = standing(issued, client)
            assert (found.mode, found.context, found.suppresses, found.inner) == ("own", {"a": 1}, True, None)
        assert context.get_current() == {"a": 1}


def test_nobody_is_silenced_for_spans_that_would_reach_nobody(replace: Replace, client: fastlane.OpenAI) -> None:
    replace("opentelemetry.instrumentation.genai.openai")
    assert standing(None, client).mode == "own"
    _settings.use(TelemetrySettings(meter_provider=object()))
    assert standing(None, client).mode == "defer"


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
    assert not http_instrumented(client._client)
    with httpx2.Client() as http, httpx2.Client(mounts={"all://": httpx2.HTTPTransport()}) as mounted:
        assert not http_instrumented(http)
        transport = mounted._mounts[next(iter(mounted._mounts))]
        assert transport is not None
        monkeypatch.setattr(transport, "handle_request", FunctionWrapper(transport.handle_request, theirs))
        assert http_instrumented(mounted)
        assert not http_instrumented(http)
        replaced = FunctionWrapper(httpx2.HTTPTransport.handle_request, theirs)
        monkeypatch.setattr(httpx2.HTTPTransport, "handle_request", replaced)
        assert http_instrumented(http)
        assert http_instrumented(client._client)
