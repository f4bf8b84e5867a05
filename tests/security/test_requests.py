"""Nothing that is put into a request becomes another header or another request, and a key stays with its origin."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import fastlane
from tests.call_peer import JSON, MESSAGES, Asked, CallPeer, Reply, async_ours, async_stock, ours, stock, trusted

KEY = "sk-first"
BREAKS = ("\r\n", "\n", "\r", "\0")


@pytest.fixture
def second(running_peer: CallPeer, tmp_path: Path) -> Iterator[CallPeer]:
    """Another origin, of the same protocol."""
    with CallPeer(running_peer.protocol) as other, trusted(tmp_path):
        yield other


@pytest.mark.parametrize("position", ["value", "name", "default", "key", "organization", "host"])
@pytest.mark.parametrize("between", BREAKS, ids=repr)
def test_line_end_in_a_header_is_refused_and_nothing_is_sent(peer: CallPeer, position: str, between: str) -> None:
    planted = f"a{between}x-injected: 1"
    options: dict[str, Any] = {"max_retries": 0}
    headers: dict[str, str] = {}
    if position == "key":
        options["api_key"] = planted
    elif position == "organization":
        options["organization"] = planted
    elif position == "default":
        options["default_headers"] = {"x-mine": planted}
    else:
        headers = {planted: "1"} if position == "name" else {"host" if position == "host" else "x-mine": planted}
    with ours(peer, **options) as client:
        with pytest.raises(openai.APIConnectionError) as raised:
            client.chat.completions.create(model="m", messages=MESSAGES, extra_headers=headers)
        assert "injected" not in f"{raised.value.__cause__!r}{raised.value!r}"
        assert peer.asked == []
        # The connection is as good as before.
        if position in ("value", "name", "host"):
            assert client.chat.completions.create(model="m", messages=MESSAGES).choices


@pytest.mark.parametrize(
    "model", ["a\r\nx-injected: 1", "../../files", "a?b=c", "a#b", "a/b%2e%2e", "é", 'a"b', "a b", ""]
)
def test_model_s_name_is_sent_as_the_stock_client_sends_it(peer: CallPeer, model: str) -> None:
    def asked(client: Any) -> list[Asked] | str:
        with client:
            try:
                client.chat.completions.create(model=model, messages=MESSAGES)
            except (openai.OpenAIError, ValueError) as error:
                return type(error).__name__
            return [one._replace(headers=[]) for one in peer.take()]

    for azure in (False, True):
        made = []
        for kind in (stock, ours):
            client: Any = kind(peer, max_retries=0)
            if azure:
                classes = {stock: openai.AzureOpenAI, ours: fastlane.AzureOpenAI}
                client.close()
                given: dict[str, Any] = {
                    "azure_endpoint": peer.url,
                    "api_key": "k",
                    "api_version": "v",
                    "max_retries": 0,
                }
                if kind is stock:  # which speaks HTTP/1.1 by default
                    given["http_client"] = openai.DefaultHttpxClient(http2=peer.protocol == "HTTP/2")
                client = classes[kind](**given)
            made.append(asked(client))
        assert made[0] == made[1]
        if isinstance(made[1], list):
            (one,) = made[1]
            assert not set(one.target) & {" ", "\r", "\n"}
            # A name is data of the body: the path is that of the endpoint.
            assert azure or one.target == "/v1/chat/completions"


def sent_on(to: CallPeer, status: int) -> Reply:
    return Reply(status, (("location", f"{to.url}/v1/elsewhere"), JSON, ("set-cookie", "of=here; Path=/")), b"{}")


def credentials(asked: Asked) -> dict[str, str | None]:
    names = ("authorization", "api-key", "cookie", "openai-organization", "x-mine", "proxy-authorization")
    return {name: asked.header(name) for name in names}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_redirect_to_another_origin_drops_the_key(peer: CallPeer, second: CallPeer, status: int, stream: bool) -> None:
    options: dict[str, Any] = {"api_key": KEY, "max_retries": 0, "default_headers": {"x-mine": "1"}}
    seen = []
    for kind in (stock, ours):
        peer.replies = [sent_on(second, status)]
        with kind(peer, **options) as client:
            list(client.chat.completions.create(model="m", messages=MESSAGES, stream=stream))
        (there,) = second.take()
        seen.append(credentials(there))
        (here,) = peer.take()
        assert here.header("authorization") == f"Bearer {KEY}"
    for later in (async_stock, async_ours):
        peer.replies = [sent_on(second, status)]

        async def ask(made: Any = later) -> None:
            async with made(peer, **options) as client:
                await client.chat.completions.create(model="m", messages=MESSAGES)

        asyncio.run(ask())
        (there,) = second.take()
        seen.append(credentials(there))
        peer.take()
    assert seen == [seen[0]] * 4
    assert seen[0]["authorization"] is None
