"""A server over real TLS, HTTP/2 or HTTP/1.1, that notes what it is asked, and clients of both kinds that trust it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import openai

import fastlane
from fastlane import Connection
from tests.transport.peer import INTERNAL_ERROR, Peer, Stream, authority
from tests.transport.peer_h1 import PeerH1, Request1
from tests.waiting import SYNC, Form, comes_true

PROTOCOLS = ("HTTP/2", "HTTP/1.1")

ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Rhine"}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
MESSAGES: list[Any] = [{"role": "user", "content": "Name a river."}]
JSON = ("content-type", "application/json")


class Asked(NamedTuple):
    """One request. HTTP/2 has the order of its fields for itself: there they are sorted."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value.decode() for key, value in self.headers if key.lower() == name.encode()), None)


class Reply(NamedTuple):
    """What the server answers; with a status of 0 it breaks the request off."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = (JSON, ("x-request-id", "req_1"))
    body: bytes = json.dumps(ANSWER).encode()


class CallPeer:
    """Answers as a test says, one request at a time from `replies`, and then `usually`."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self.asked: list[Asked] = []
        self.replies: list[Reply] = []
        self.usually: Callable[[Asked], Reply] = lambda _: Reply()
        self.before: Callable[[Asked], None] = lambda _: None
        self.hold = threading.Event()
        self.hold.set()
        self._server: Any = Peer(self._h2) if protocol == "HTTP/2" else PeerH1(self._h1, tls=True)
        self.url = self._server.url

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.hold.set()
        self._server.__exit__(*error)

    def clear(self) -> None:
        """Forget everything."""
        self.asked.clear()
        self.replies.clear()
        self.usually = lambda _: Reply()
        self.before = lambda _: None
        self.hold.set()

    def close_connections(self) -> None:
        """Close every connection, as a server does with idle ones."""
        for connection in self._server.connections:
            connection.fin()

    def take(self) -> list[Asked]:
        """What has been asked since this was asked last."""
        asked, self.asked = self.asked, []
        return asked

    def wait_until_asked(self) -> None:
        """Wait for the next request."""
        comes_true(lambda: self.asked)

    def _reply(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        self.before(asked)
        return self.replies.pop(0) if self.replies else self.usually(asked)

    def _h2(self, stream: Stream) -> None:
        names = (b":method", b":path", b":scheme", b":authority")
        headers = [(name, value) for name, value in stream.headers if name not in names]
        headers.append((b"host", (stream.header(":authority") or "").encode()))
        reply = self._reply(Asked(stream.method, stream.path, sorted(headers), stream.body()))
        stream.hold(self.hold)
        if not reply.status:
            stream.rst(INTERNAL_ERROR)
        else:
            stream.answer(reply.body, reply.status, reply.headers)

    def _h1(self, request: Request1) -> None:
        reply = self._reply(Asked(request.method, request.target, request.headers, request.body()))
        request.hold(self.hold)
        if not reply.status:
            request.close()
            return
        lines = [f"HTTP/1.1 {reply.status} Whatever"]
        lines += [f"{name}: {value}" for name, value in reply.headers]
        if reply.status != 204:
            lines.append(f"content-length: {len(reply.body)}")
        request.send("\r\n".join([*lines, "", ""]).encode("latin-1") + reply.body)


@contextmanager
def trusted(directory: Path) -> Iterator[dict[str, str]]:
    """The environment of clients that trust these servers."""
    certificates = directory / "authority.pem"
    authority().cert_pem.write_to_path(str(certificates))
    yield {"SSL_CERT_FILE": str(certificates)}


def stock(peer: CallPeer, form: Form = SYNC, **options: Any) -> Any:
    """openai's client, over the peer's protocol."""
    library = openai.DefaultAsyncHttpxClient if form.asynchronous else openai.DefaultHttpxClient
    http_client = library(http2=peer.protocol == "HTTP/2")
    return form.make(openai, **_options(peer, options), http_client=http_client)


def ours(peer: CallPeer, form: Form = SYNC, **options: Any) -> Any:
    """Our client, over the peer's protocol."""
    return form.make(fastlane, **_options(peer, options), only_plays=[_connection(peer)])


def async_stock(peer: CallPeer, **options: Any) -> openai.AsyncOpenAI:
    """openai's asynchronous client, over the peer's protocol, for tests that start tasks."""
    http_client = openai.DefaultAsyncHttpxClient(http2=peer.protocol == "HTTP/2")
    return openai.AsyncOpenAI(**_options(peer, options), http_client=http_client)


def async_ours(peer: CallPeer, **options: Any) -> fastlane.AsyncOpenAI:
    """Our asynchronous client, over the peer's protocol, for tests that start tasks."""
    return fastlane.AsyncOpenAI(**_options(peer, options), only_plays=[_connection(peer)])


def both(made: Callable[[Any], Any], peer: CallPeer, form: Form = SYNC, **options: Any) -> tuple[Any, Any]:
    """What a use of our client gives, and the same use of openai's."""
    with stock(peer, form, **options) as client:
        expected = made(client)
    with ours(peer, form, **options) as client:
        return made(client), expected


def _connection(peer: CallPeer) -> Connection:
    return Connection(http2="require" if peer.protocol == "HTTP/2" else "never")


def _options(peer: CallPeer, options: dict[str, Any]) -> dict[str, Any]:
    return {"api_key": "sk-test", "base_url": f"{peer.url}/v1", "max_retries": 0, **options}


def ask(client: Any, **options: Any) -> Any:
    """A small call."""
    return client.chat.completions.create(model="m", messages=MESSAGES, **options)


def comparable(result: Any) -> Any:
    """What can be compared of a call's result, or of its error."""
    if isinstance(result, openai.BaseModel):
        return type(result), repr(result), result.model_fields_set, getattr(result, "_request_id", None)
    if isinstance(result, BaseException):
        response, cause = getattr(result, "response", None), result.__cause__
        return {
            "class": type(result),
            "said": str(result),
            "body": getattr(result, "body", None),
            "status": getattr(result, "status_code", None),
            "request_id": getattr(result, "request_id", None),
            "cause": None if cause is None else type(cause).__name__,
            "context_is_told": result.__suppress_context__,
            "request": _request(getattr(result, "request", None)),
            "response": None if response is None else seen(response),
        }
    return type(result), result


def _request(request: Any) -> Any:
    if request is None:
        return None
    timeouts = request.extensions["timeout"]
    return request.method, request.url, request.headers.multi_items(), _content(request), timeouts


def _content(message: Any) -> Any:
    try:
        return message.content
    except Exception as error:  # noqa: BLE001 - what has not been read cannot be seen
        return type(error)


def seen(response: Any) -> dict[str, Any]:
    """What an application can see of an answer of the HTTP library."""
    return {
        "status": response.status_code,
        "reason": response.reason_phrase if response.http_version == "HTTP/1.1" else None,
        "headers": [(name, value) for name, value in response.headers.multi_items() if name != "set-cookie"],
        "cookies": dict(response.cookies),
        "content": _content(response),
        "text": response.text if response.is_stream_consumed else None,
        "encoding": response.encoding,
        "version": response.http_version,
        "downloaded": response.num_bytes_downloaded,
        "closed": response.is_closed,
        "consumed": response.is_stream_consumed,
        "took": response.elapsed.total_seconds() > 0,
        "url": response.url,
        "next": response.next_request,
        "request": _request(response.request),
        "history": [seen(earlier) for earlier in response.history],
    }


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives or raises, comparable."""
    try:
        return comparable(call())
    except Exception as error:  # noqa: BLE001 - both sides have to fail alike
        return comparable(error)
