"""The examples of openai's own README run unchanged but for the import."""

from __future__ import annotations

import ast
import asyncio
import importlib.metadata
import importlib.util
import inspect
import json
import os
import re
import ssl
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import trustme

import fastlane
from fastlane.emulator import Emulator
from tests.transport.peer_h1 import PeerH1, Request1

CLIENTS = ("OpenAI", "AsyncOpenAI", "AzureOpenAI", "AsyncAzureOpenAI")

# What no test can run, found by a piece of the example, and why.
LEFT_OUT = {
    "client.realtime.connect": "a websocket to a model that speaks",
    '"/var/run/secrets/kubernetes.io/serviceaccount/token"': "calls with a token that a Kubernetes pod has",
    "from flask import": "a web server for webhooks, on a framework that is not installed",
    "DefaultHttpx2Client(...)": "the ellipsis stands for arguments",
    "DefaultHttpxClient(...)": "the ellipsis stands for arguments",
    "response.my_field": "a piece that looks at a field which stands for any",
    "first_page.after": "reads a field that openai's own page has not",
    "bedrock": "needs AWS credentials; its client classes stay openai's own",
    "BedrockOpenAI": "needs AWS credentials; its client classes stay openai's own",
    "openai.http_client = openai.DefaultHttpx2Client()": "sets up the module-level client, which has its own tests",
}
if importlib.util.find_spec("httpx_aiohttp") is None:
    LEFT_OUT["DefaultAioHttpClient"] = "needs openai's extra `aiohttp`, which is not installed"

# Addresses that an example cannot know, and what replaces them.
AZURE = "https://example-endpoint.openai.azure.com"

# Endpoints that the embedded provider does not have: these examples are answered by a small server of their own.
ELSEWHERE = ("fine_tuning.jobs", "audio.transcriptions", '"/foo"')


def examples() -> list[str]:
    metadata: Any = importlib.metadata.metadata("openai")
    text: str = metadata.get_payload() or metadata["Description"]
    return [
        textwrap.dedent(code) for code in re.findall(r"^```(?:python|py)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    ]


def reason_to_leave_out(example: str) -> str | None:
    return next((reason for piece, reason in LEFT_OUT.items() if piece in example), None)


def imported_from_fastlane(example: str) -> str:
    """The example with `from openai import …` as `from fastlane import …`, and nothing else changed."""
    return re.sub(r"^from openai import ", "from fastlane import ", example, flags=re.MULTILINE)


def respond(request: Request1) -> None:
    """Fine-tuning jobs on two pages, a transcription, and an endpoint that openai does not know."""
    request.body()
    more = "after=" not in request.target
    job = {"id": "ftjob-1" if more else "ftjob-2", "object": "fine_tuning.job", "created_at": 1, "model": "m"}
    status = b"404 Not Found"
    content: dict[str, Any] = {"error": {"message": "no such file"}}
    if request.method == "GET":
        status, content = b"200 OK", {"object": "list", "data": [job], "has_more": more}
    elif request.target.endswith(("/audio/transcriptions", "/foo")):
        status, content = b"200 OK", {"text": "Rhine"}
    body = json.dumps(content).encode()
    head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nx-foo: bar\r\n\r\n"
    request.send(head % (status, len(body)) + body)


@pytest.fixture
def elsewhere() -> Iterator[PeerH1]:
    with PeerH1(respond) as peer:
        yield peer


@pytest.fixture
def surroundings(
    provider: Emulator, elsewhere: PeerH1, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files and variables that the examples speak of."""
    local = any(piece in example for piece in ELSEWHERE)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "azure-test")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{elsewhere.url}/v1" if local else provider.base_url)
    if "azure_endpoint" in example:
        monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.chdir(tmp_path)
    Path("path/to").mkdir(parents=True)
    Path("path/to/image.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    Path("input.jsonl").write_text("{}\n")
    certificate = trustme.CA().issue_cert("client.example.com")
    certificate.cert_chain_pems[0].write_to_path("chain.pem")
    certificate.private_key_pem.write_to_path("key.pem")
    monkeypatch.setenv("OPENAI_MTLS_CERTIFICATE_CHAIN", "chain.pem")
    monkeypatch.setenv("OPENAI_MTLS_PRIVATE_KEY", "key.pem")
    monkeypatch.setenv("OPENAI_IDENTITY_PROVIDER_ID", "idp-123")
    monkeypatch.setenv("OPENAI_SERVICE_ACCOUNT_ID", "sa-456")


def run(example: str, clients: list[fastlane.OpenAI | fastlane.AsyncOpenAI]) -> None:
    code = compile(example, "README", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    awaits = bool(code.co_flags & inspect.CO_COROUTINE)
    client = fastlane.AsyncOpenAI() if awaits else fastlane.OpenAI()
    clients.append(client)
    # What an example takes from the ones before it.
    namespace: dict[str, Any] = {"__name__": "readme", "client": client, "audio_bytes": b"RIFF"}
    for name in ("DefaultHttpx2Client", "DefaultHttpxClient", *CLIENTS):
        namespace[name] = getattr(fastlane if name in CLIENTS else openai, name, None)
    namespace |= {"os": os, "ssl_context": ssl.create_default_context()}
    if importlib.util.find_spec("httpx") is not None:
        namespace["httpx"] = importlib.import_module("httpx")
    if awaits:

        async def awaited() -> None:
            await eval(code, namespace)
            await client.close()  # type: ignore[misc]

        asyncio.run(awaited())
    else:
        exec(code, namespace)
    used = [value for value in namespace.values() if isinstance(value, openai.OpenAI | openai.AsyncOpenAI)]
    assert used
    clients += [each for each in used if each is not client]  # type: ignore[misc]


@pytest.mark.parametrize("example", [each for each in examples() if reason_to_leave_out(each) is None])
# The examples do not close their clients, and some say `asyncio.run` with a client made outside.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("surroundings")
def test_readme_example_of_openai_runs(example: str, provider: Emulator, elsewhere: PeerH1) -> None:
    clients: list[fastlane.OpenAI | fastlane.AsyncOpenAI] = []
    with fastlane.user_action("an example") as action:
        run(imported_from_fastlane(example).replace(AZURE, provider.base_url.removesuffix("/v1")), clients)

    asked = len(provider.log()) + len(elsewhere.requests)
    assert all(type(client).__module__ == "fastlane.client.clients" for client in clients)
    assert action.call_count == asked
    if any(word in example for word in (".create(", ".list(", ".post(")):
        assert asked
    for client in clients:
        if isinstance(client, fastlane.OpenAI):
            client.close()


def test_skipped_readme_examples_have_reasons_and_are_few() -> None:
    assert all(LEFT_OUT.values())
    assert sum(reason_to_leave_out(each) is not None for each in examples()) < len(examples()) / 2
    assert len(examples()) > 30
