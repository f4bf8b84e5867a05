"""What a call asks of the model that is to answer it, as the candidates of its record say it."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from random import Random
from typing import Any

import pytest

import fastlane
from fastlane import CallRefusedError, Connection, Routing
from fastlane.catalog import Catalog, CatalogModel, Route
from fastlane.providers import ProviderFacts, registered
from fastlane.providers.facts import Cache
from tests.attempts.events import whole_response
from tests.call_peer import ANSWER, CallPeer, Reply
from tests.plays.facts import fact
from tests.plays.routing.conftest import VARIABLE
from tests.prepared_server import LIBRARY

URL = "http://server/v1"
HTTP = LIBRARY.Client(transport=LIBRARY.MockTransport(lambda _: LIBRARY.Response(200, json=ANSWER)))
ENDPOINTS = ("/chat/completions", "/responses", "/completions")
ALPHABET = "etaoinshrdlu"
TEXT = " ".join("".join(Random(0).choices(ALPHABET, k=5)) for _ in range(6_000))


def model(name: str, first_token_s: float = 0.3, **fields: Any) -> CatalogModel:
    return CatalogModel(
        name=name, first_token_s=((1_000, first_token_s),), tokens_per_s=100.0, endpoints=ENDPOINTS, **fields
    )


def keeping(automatic: bool | None) -> ProviderFacts:
    """Facts of a provider that keeps prompts by itself, or not, or of which that is not known."""
    known = None if automatic is None else fact(automatic)
    return ProviderFacts(slug="keeps", cache=Cache(automatic=known, minimum_tokens=fact(1_024), lifetime_s=fact(300.0)))


def client_of(*models: CatalogModel) -> Any:
    routing = Routing(Catalog(models=models), exploration=0.0)
    return fastlane.OpenAI(
        api_key="k", base_url=URL, http_client=HTTP, only_plays=[routing], max_retries=0, raise_play_errors=True
    )


def cached(client: Any, *contents: Any, route: str = "fastlane/auto", **more: Any) -> dict[str, int]:
    """Make a call. Returns how many of its tokens were expected in a cache, by the names of models."""
    messages = [{"role": "user", "content": content} for content in contents]
    client.chat.completions.create(model=route, messages=messages, **more)
    return {one.model: one.cached_tokens or 0 for one in client.last_call.routing.candidates}


def test_conversation_counts_as_cached_where_it_was_read() -> None:
    client = client_of(model("first", quality=60.0), model("second", quality=40.0))
    with registered(keeping(True), origins=[URL]):
        cached(client, TEXT, route=Route(min_quality=50))
        found = cached(client, TEXT, "And then?")

    assert found["second"] == 0
    assert 0.8 < found["first"] / (len(TEXT) / 4) < 1.2


def test_other_tools_are_another_beginning() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": TEXT[:3_000]}}
    client = client_of(model("only", capabilities=("tools",)))
    with registered(keeping(True), origins=[URL]):
        cached(client, TEXT, tools=[tool])

        assert cached(client, TEXT, tools=[tool])["only"] > 0
        assert cached(client, TEXT)["only"] == 0


def test_first_cache_estimate_follows_provider_facts() -> None:
    found = []
    for automatic in (True, None, False):
        client = client_of(model("only"))
        with registered(keeping(automatic), origins=[URL]):
            cached(client, TEXT)
            found.append(cached(client, TEXT, "And then?")["only"])

    keeps, unknown, keeps_not = found
    assert 0.4 * keeps < unknown < 0.7 * keeps
    assert keeps_not < 0.1 * keeps


def test_image_counts_as_model_tokens_not_bytes() -> None:
    url = "data:image/png;base64," + Random(0).randbytes(200_000).hex()
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]
    cached(client_of(model("fits", capabilities=("vision",), context_tokens=2_500)), content)

    with pytest.raises(CallRefusedError, match="tokens of context are too few"):
        cached(client_of(model("small", capabilities=("vision",), context_tokens=500)), content)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"endpoints": ("/responses",)}, 'its endpoints in the catalog lack "/chat/completions"'),
        ({"capabilities": frozenset()}, 'its capabilities in the catalog lack "tools"'),
    ],
)
def test_unfit_model_is_refused_with_the_reason(changed: dict[str, Any], why: str) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    unfit = model("only", capabilities=("tools",)).model_copy(update=changed)
    with pytest.raises(CallRefusedError, match=why):
        cached(client_of(unfit), "x", tools=[tool])


def test_call_that_refers_to_another_goes_to_its_provider(first: CallPeer, second: CallPeer) -> None:
    """What is not known to be kept elsewhere is kept by the client's own provider."""
    first.usually = second.usually = lambda _: Reply(body=json.dumps(whole_response()).encode())
    own = model("own", quality=40.0)
    far = model("far", quality=60.0, base_url=f"{second.url}/v1", api_key_env=VARIABLE)
    plays = [Connection(), Routing(Catalog(models=(own, far)), exploration=0.0, streams=False)]
    with fastlane.OpenAI(
        api_key="sk-first", base_url=f"{first.url}/v1", only_plays=plays, raise_play_errors=True
    ) as client:
        client.responses.create(model=Route(min_quality=50), input="Hello")
        assert client.last_call is not None
        assert client.last_call.response_id == "resp_1"
        unfit = []
        for reference in (
            {"previous_response_id": "resp_1"},
            {"previous_response_id": "resp_9"},
            {"conversation": "conv_9"},
            {"conversation": {"id": "conv_9"}},
        ):
            create: Any = client.responses.create
            create(model="fastlane/auto", input="And then?", **reference)
            record: Any = client.last_call
            unfit.append([one.model for one in record.routing.candidates if one.why_not])

    assert unfit == [["own"], ["far"], ["far"], ["far"]]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": "x", "tools": "y", "stop": 7, "modalities": 3, "response_format": []},
        {"messages": [None, 3, {"content": [None, {"type": []}]}], "n": [], "logit_bias": "x"},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": 3}, {"type": "file"}]}]},
        {"input": [[], {"content": 5}], "reasoning": 5, "include": 7, "tools": [None, {"type": 5}], "text": []},
        {"input": 3, "prompt": [], "instructions": {}, "max_tokens": "x", "previous_response_id": [], "functions": {}},
    ],
)
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_odd_body_is_routed_or_refused_and_not_changed(body: dict[str, Any], endpoint: str) -> None:
    given = {"model": "fastlane/auto", **body}
    before = copy.deepcopy(given)
    client = client_of(model("only", capabilities=("vision", "audio", "tools", "json")))
    with suppress(CallRefusedError):
        client.post(endpoint, body=given, cast_to=object)

    assert given == before
