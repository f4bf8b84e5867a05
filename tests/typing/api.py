"""What a type checker knows of the drop-in: checked by mypy, never executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import httpx2
import openai
import pydantic
from openai import AsyncStream, Stream
from openai.types import CreateEmbeddingResponse, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ParsedChatCompletion
from openai.types.responses import ParsedResponse, Response, ResponseStreamEvent

import fastlane
import fastlane.types.chat
from fastlane import (
    APITimeoutError,
    AsyncAzureOpenAI,
    AsyncOpenAI,
    AzureOpenAI,
    Call,
    CallRecord,
    Connection,
    Hedging,
    OpenAI,
    Play,
    RequestEncoding,
    Routing,
    Session,
)
from fastlane.catalog import Catalog, CatalogModel, ModelPrice, Route, Score, Task
from fastlane.engine.session import STOP, CallOutcome, Stop
from fastlane.lib.streaming.chat import ChatCompletionStream
from fastlane.pagination import SyncPage
from fastlane.records import (
    Attempt,
    Fallback,
    HedgingRecord,
    RequestEncodingRecord,
    RoutingCandidate,
    RoutingRecord,
    Timeline,
    Usage,
)
from fastlane.resources.chat.completions import Completions
from fastlane.types import CompletionUsage
from fastlane.types.chat import ChatCompletionMessageParam
from fastlane.types.chat.chat_completion import Choice


class Answer(pydantic.BaseModel):
    river: str


class Shorter(Play):
    def open(self, call: Call) -> Session | None:
        return ShorterSession()


class ShorterSession(Session):
    def plan(self, call: Call) -> Call:
        return call.with_body("at most 9 tokens", max_tokens=9)

    def on_event(self, event: Any) -> Stop | None:
        return STOP

    def close(self, outcome: CallOutcome) -> None:
        assert_type(outcome.record.outcome == "stopped", bool)


def hook(record: CallRecord) -> None:
    assert_type(record.last_attempt, Attempt | None)
    assert_type(record.request_encoding, RequestEncodingRecord | None)


def clients_take_what_openai_takes() -> None:
    OpenAI()
    OpenAI(api_key="sk", base_url="https://example.com/v1", timeout=3.0, max_retries=0, organization=None)
    OpenAI(api_key=lambda: "sk", base_url=httpx2.URL("https://example.com"), http_client=httpx2.Client())
    OpenAI(timeout=openai.Timeout(3.0), default_headers={"x-app": "1"}, default_query={"page": 1})
    OpenAI(plays=[Connection(), Shorter()], on_call_end=[hook], raise_play_errors=True)
    OpenAI(plays=())
    OpenAI(only_plays=[Connection()])
    AsyncAzureOpenAI(azure_endpoint="https://example.com", api_version="1", only_plays=())
    OpenAI(plays=[RequestEncoding(forms=("json+gzip",), facts=Path("gateway.toml"))])
    AsyncOpenAI(http_client=httpx2.AsyncClient(), plays=[Connection(http2="never")])
    AzureOpenAI(azure_endpoint="https://example.com", api_version="1", azure_deployment="d", plays=[Connection()])
    AsyncAzureOpenAI(azure_endpoint="https://example.com", api_version="1", azure_ad_token="t")


def types_of_openai_are_found_here(messages: list[ChatCompletionMessageParam]) -> None:
    answer: fastlane.types.chat.ChatCompletion = OpenAI().chat.completions.create(model="m", messages=messages)
    assert_type(answer, ChatCompletion)
    assert_type(answer.choices, list[Choice])
    assert_type(answer.usage, CompletionUsage | None)
    assert_type(OpenAI().models.list(), SyncPage[Model])
    assert_type(OpenAI().chat.completions, Completions)
    with OpenAI().chat.completions.stream(model="m", messages=messages) as stream:
        assert_type(stream, ChatCompletionStream[None])


def wrong_arguments_are_errors() -> None:
    OpenAI("sk")  # type: ignore[call-arg]
    OpenAI(api_key=3)  # type: ignore[arg-type]
    OpenAI(max_retries="two")  # type: ignore[arg-type]
    OpenAI(temperature=1.0)  # type: ignore[call-arg]
    OpenAI(azure_endpoint="https://example.com")  # type: ignore[call-arg]
    OpenAI(http_client=httpx2.AsyncClient())  # type: ignore[arg-type]
    OpenAI(plays=Connection())  # type: ignore[arg-type]
    OpenAI(plays=[Connection])  # type: ignore[list-item]
    OpenAI(only_plays=[Connection])  # type: ignore[list-item]
    OpenAI(on_call_end=[3])  # type: ignore[list-item]
    OpenAI(raise_play_errors="yes")  # type: ignore[arg-type]
    Connection(http2="always")  # type: ignore[arg-type]
    OpenAI().with_options(temperature=1.0)  # type: ignore[call-arg]
    OpenAI().with_options(max_retries="two")  # type: ignore[arg-type]


def copies_stay_what_they_are(client: OpenAI, azure: AsyncAzureOpenAI) -> None:
    assert_type(client.with_options(timeout=1.0), OpenAI)
    assert_type(client.copy(plays=[Connection()], raise_play_errors=True), OpenAI)
    assert_type(client.with_options(only_plays=[]), OpenAI)
    assert_type(client.with_plays(Connection(), Shorter()), OpenAI)
    assert_type(azure.with_options(max_retries=1).with_plays(), AsyncAzureOpenAI)
    with client as entered:
        assert_type(entered, OpenAI)


def a_client_is_openais(client: OpenAI, azure: AzureOpenAI) -> tuple[openai.OpenAI, openai.AzureOpenAI, OpenAI]:
    return client, azure, azure


def calls_return_what_openai_returns(client: OpenAI, *, stream: bool) -> None:
    chat = client.chat.completions
    assert_type(chat.create(model="m", messages=[{"role": "user", "content": "?"}]), ChatCompletion)
    assert_type(chat.create(model="m", messages=[], stream=True), Stream[ChatCompletionChunk])
    assert_type(chat.create(model="m", messages=[], stream=stream), ChatCompletion | Stream[ChatCompletionChunk])
    assert_type(chat.parse(model="m", messages=[], response_format=Answer), ParsedChatCompletion[Answer])
    assert_type(chat.with_raw_response.create(model="m", messages=[]).parse(), ChatCompletion)
    assert_type(client.responses.create(model="m", input="?"), Response)
    assert_type(client.responses.create(model="m", input="?", stream=True), Stream[ResponseStreamEvent])
    assert_type(client.responses.parse(model="m", input="?", text_format=Answer), ParsedResponse[Answer])
    assert_type(client.embeddings.create(model="m", input="?"), CreateEmbeddingResponse)
    assert_type(client.models.retrieve("m"), Model)
    for chunk in chat.create(model="m", messages=[], stream=True):
        assert_type(chunk.choices[0].delta.content, str | None)
    with chat.stream(model="m", messages=[]) as helper:
        helper.get_final_completion()


def wrong_calls_are_errors(client: OpenAI) -> None:
    client.chat.completions.create(model="m")  # type: ignore[call-overload]
    client.chat.completions.create(model="m", messages="?")  # type: ignore[arg-type]
    client.chat.completions.nothing()  # type: ignore[attr-defined]


async def async_calls_return_what_openai_returns(client: AsyncOpenAI) -> None:
    chat = client.chat.completions
    assert_type(await chat.create(model="m", messages=[]), ChatCompletion)
    assert_type(await chat.create(model="m", messages=[], stream=True), AsyncStream[ChatCompletionChunk])
    assert_type(await chat.parse(model="m", messages=[], response_format=Answer), ParsedChatCompletion[Answer])
    assert_type(await client.responses.create(model="m", input="?"), Response)
    async for chunk in await chat.create(model="m", messages=[], stream=True):
        assert_type(chunk.model, str)
    async with client as entered:
        assert_type(entered, AsyncOpenAI)


def every_call_leaves_a_record(client: OpenAI) -> None:
    assert_type(client.calls, tuple[CallRecord, ...])
    record = client.last_call
    assert_type(record, CallRecord | None)
    assert record is not None
    assert_type(record.time_to_first_token_s, float | None)
    assert_type(record.time_per_output_token_s, float | None)
    assert_type(record.api_end_to_end_s, float | None)
    assert_type(record.duration_s, float)
    assert_type(record.usage, Usage)
    assert_type(record.usage.cached_tokens, int | None)
    assert_type(record.timeline, Timeline)
    assert_type(record.attempts, tuple[Attempt, ...])
    assert_type(record.attempts[0].wire.tls_s, float | None)
    assert_type(record.connection_reused, bool | None)
    assert_type(record.error, str | None)
    assert_type(record.plays, tuple[str, ...])
    record.model = "other"  # type: ignore[misc]


def a_user_action_is_measured() -> None:
    with fastlane.user_action("answer ticket") as action:
        assert_type(action, fastlane.user_action)
    assert_type(action.application_end_to_end_s, float | None)
    assert_type(action.calls, tuple[CallRecord, ...])
    assert_type(action.path, tuple[str, ...])
    fastlane.user_action()  # type: ignore[call-arg]


async def a_user_action_is_measured_in_a_task() -> None:
    async with fastlane.user_action("answer ticket") as action:
        assert_type(action.call_count, int)


def the_module_level_client_is_opted_in() -> None:
    fastlane.install(plays=[Connection()], on_call_end=[hook], raise_play_errors=True)
    fastlane.uninstall()
    fastlane.install(plays=Connection())  # type: ignore[arg-type]


def a_route_passes_where_a_models_name_does(client: OpenAI) -> None:
    route = Route(min_quality=45, task="triage", min_pass_rate=0.9)
    assert_type(client.chat.completions.create(model=route, messages=[]), ChatCompletion)
    assert_type(client.responses.create(model=route, input="?"), Response)
    assert_type(Route.parse("fastlane/auto"), Route | None)
    assert_type(route.min_quality, float | None)
    Route(quality=45)  # type: ignore[call-arg]
    Route(task=7)  # type: ignore[arg-type]


def a_catalog_is_a_file_or_objects(client: OpenAI) -> None:
    small = CatalogModel(
        name="small",
        base_url="https://example.com/v1",
        api_key_env="EXAMPLE_API_KEY",
        scores={"triage": Score(57, 60)},
        first_token_s=((1_000, 0.3),),
        tokens_per_s=400,
        price=ModelPrice(input=0.1, output=0.4),
    )
    catalog = Catalog(models=[small], tasks={"triage": Task(min_quality=45)})
    assert_type(catalog.named("small"), CatalogModel)
    assert_type(catalog.models[0].price, ModelPrice | None)
    assert_type(Catalog.load(Path("catalog.toml")), Catalog)
    routing = Routing(catalog, min_quality=45, task="triage", deadline_s=20)
    client.with_plays(routing, Routing("catalog.toml"), Hedging(budget=0.05, not_with_tools=["pay"]))
    Routing()  # type: ignore[call-arg]
    Routing(catalog, 45)  # type: ignore[call-arg]
    Hedging(0.05)  # type: ignore[call-arg]
    CatalogModel(name="small")  # type: ignore[call-arg]


def a_record_says_what_was_decided(record: CallRecord) -> None:
    assert_type(record.routing, RoutingRecord | None)
    assert_type(record.hedging, HedgingRecord | None)
    assert_type(record.attempts[0].given_up == "late", bool)
    if record.routing is not None:
        assert_type(record.routing.candidates, tuple[RoutingCandidate, ...])
        assert_type(record.routing.fallbacks, tuple[Fallback, ...])
        assert_type(record.routing.model, str | None)


def errors_are_openais_own(error: openai.APITimeoutError) -> None:
    assert_type(error, APITimeoutError)
    assert_type(fastlane.NOT_GIVEN, openai.NotGiven)
