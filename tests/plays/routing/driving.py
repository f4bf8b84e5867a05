"""Calls at another upstream than the client's own, as the driver of a routed call makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import openai
from openai._base_client import make_request_options
from openai.types.chat import ChatCompletion

from fastlane.catalog import CatalogModel
from fastlane.compat.requests import post_options
from fastlane.engine.drivers import async_run as async_driven, run as driven
from fastlane.engine.flow import begin_call, send_planned
from fastlane.plays.routing.clients import UpstreamClients, options_for
from tests.call_peer import MESSAGES

FORWARDED = ("traceparent", "tracestate")
VARIABLE = "SECOND_KEY"


def model_at(url: str, *, variable: str | None = VARIABLE, **fields: Any) -> CatalogModel:
    """A model of a catalog at a server's address."""
    given = {"name": "second", "first_token_s": [(1_000, 0.5)], "tokens_per_s": 100.0, **fields}
    return CatalogModel(base_url=f"{url}/v1", api_key_env=variable, **given)


def options_of(path: str = "/chat/completions", *, own: dict[str, Any] | None = None, **given: Any) -> Any:
    """The options of a call as openai's resources make them; `own`: fields of theirs beside those of the caller."""
    body = {"model": "m", "messages": MESSAGES}
    options = post_options(path, body, make_request_options(**given) | (own or {}))
    if options.extra_json:
        options.json_data = {**body, **options.extra_json}
    return options


def run(
    clients: UpstreamClients, client: Any, model: CatalogModel, options: Any, forward: Sequence[str] = FORWARDED
) -> Any:
    """The answer of a model's upstream to a synchronous client's call."""
    sibling: Any = clients.of(client, model)
    state = begin_call(client, ChatCompletion, options, stream=False, stream_cls=openai.Stream)
    adapted = options if sibling is client else options_for(options, client, forward)
    state.client = sibling
    return driven(send_planned(state, adapted)).result


async def async_run(
    clients: UpstreamClients, client: Any, model: CatalogModel, options: Any, forward: Sequence[str] = FORWARDED
) -> Any:
    """The answer of a model's upstream to an asynchronous client's call."""
    sibling: Any = clients.of(client, model)
    state = begin_call(client, ChatCompletion, options, stream=False, stream_cls=openai.AsyncStream)
    adapted = options if sibling is client else options_for(options, client, forward)
    state.client = sibling
    return (await async_driven(send_planned(state, adapted))).result
