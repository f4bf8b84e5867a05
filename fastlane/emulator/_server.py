"""The provider on a socket, in this process and event loop: which path means what, and the control endpoints."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import sys
import traceback
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Self
from urllib.parse import parse_qsl, unquote

from fastlane.emulator import _request
from fastlane.emulator._answer import AnswerEnded, AnswerStream, strike_before_answer
from fastlane.emulator._batches import Batches
from fastlane.emulator._endpoints import GENERATING, embeddings, one_model, read_request
from fastlane.emulator._faults import Fault, FaultRules, read_faults
from fastlane.emulator._http import CONTROL_PREFIX, AcceptedConnection, Handshake, Headers, ServedExchange
from fastlane.emulator._log import Offline, RequestLog
from fastlane.emulator._prompt import EMPTY, GenerationRequest
from fastlane.emulator._provider import Provider
from fastlane.emulator._reply import compact
from fastlane.emulator._request import ApiError, read_overrides
from fastlane.emulator.settings import ProviderModel

from ..errors import ConfigurationError, MissingExtraError

_BACKLOG = 1_024
# OpenAI's own base, Azure's two, and a deployment's name in the path.
_API_PATH = re.compile(r"^/(?:openai/v1|openai|v1)/(?:deployments/(?P<deployment>[^/]+)/)?(?P<resource>.+?)/?$")
_PIECE = 262_144


def make_tls(host: str, *, http2: bool) -> tuple[ssl.SSLContext, bytes]:
    """Make an authority that lives as long as this process, and a certificate for loopback and `host`.

    Returns the server's TLS context, and the authority (PEM) by which a client can trust it. Raises MissingExtraError.
    """
    try:
        import trustme
    except ModuleNotFoundError as error:
        raise MissingExtraError("bench", "trustme") from error
    authority = trustme.CA(organization_name="fastlane emulator")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*{"localhost", "127.0.0.1", "::1", host}).configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
    return context, authority.cert_pem.bytes()


class Server:
    """`async with Server(model=…) as server:` listens on `server.port` until the block ends."""

    def __init__(
        self,
        *,
        model: ProviderModel,
        seed: int = 0,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: bool = True,
        http2: bool = True,
        faults: Iterable[Fault | str] = (),
    ) -> None:
        self.provider = Provider(model, seed=seed, faults=read_faults(faults))
        self.host = host
        self.port = port
        self.connections = 0
        self.authority_pem: bytes | None = None
        """The certificate authority by which clients can trust the server; None without TLS."""
        self._context: ssl.SSLContext | None = None
        if tls:
            self._context, self.authority_pem = make_tls(host, http2=http2)
        self._batches = Batches(self.provider)
        self._working: set[asyncio.Task[object]] = set()
        self._open: set[AcceptedConnection] = set()
        self._listener: asyncio.Server | None = None

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL."""
        return base_url(self.host, self.port, tls=self._context is not None)

    @property
    def log(self) -> tuple[RequestLog, ...]:
        return tuple(replace(record, token_ns=tuple(record.token_ns)) for record in self.provider.records)

    @property
    def offline(self) -> Offline:
        return Offline.from_json(self._batches.log())

    def client_context(self) -> ssl.SSLContext:
        """Return a TLS context that trusts the server."""
        return ssl.create_default_context(cadata=(self.authority_pem or b"").decode())

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.get_running_loop().create_server(
            self._accept, self.host, self.port, ssl=self._context, backlog=_BACKLOG
        )
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listener:
            self._listener.close()
        for connection in tuple(self._open):
            connection.abort()
        self._batches.close()
        for task in self._working:
            task.cancel()
        # One turn for the connections to learn that they are gone, one for their responses to stop.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _accept(self) -> Handshake:
        self.connections += 1
        return Handshake(self.connections, self.provider, self._answer, self._open)

    async def _answer(self, exchange: ServedExchange) -> None:
        """Answer a request. A bug becomes a 500 and a traceback on stderr."""
        try:
            await self._route(exchange)
        except ApiError as error:
            await self._send(exchange, error.body(), status=error.status, headers=error.headers)
        except (AnswerEnded, ConnectionError):
            pass
        # Whatever it is, the client gets a response and the server lives on.
        except Exception:  # noqa: BLE001
            traceback.print_exc(file=sys.stderr)
            if exchange.record.status is None:
                bug = ApiError(500, "The emulator has a bug; see its stderr.", type="server_error")
                await self._send(exchange, bug.body(), status=bug.status)
            else:
                exchange.abort()

    async def _route(self, exchange: ServedExchange) -> None:
        headers, method, path = exchange.headers, exchange.record.method, exchange.path
        if path.startswith(CONTROL_PREFIX):
            await self._send(exchange, self._control(exchange))
            return
        key = headers.get("authorization") or headers.get("api-key")
        if not key:
            raise ApiError(
                401,
                "You didn't provide an API key. You need to provide your API key in an Authorization header.",
                code="invalid_api_key",
            )
        matched = _API_PATH.match(path)
        resource = matched["resource"] if matched else ""
        overrides = read_overrides(headers)
        faults = self.provider.faults.striking(
            overrides.fault,
            tag=overrides.tag,
            random=self.provider.fault_random,
            encoded=_request.is_encoded(headers),
            target=f"{method} {resource or path}",
        )
        exchange.record.fault = ",".join(map(str, faults)) or None
        if matched and method == "POST" and resource in GENERATING:
            # What fails at the sight of an encoded body does so too where the body is no valid request.
            await strike_before_answer(exchange, [fault for fault in faults if fault.strikes_unread])
            prompt = self._prompt(exchange, faults, resource, matched["deployment"])
            answer_stream = AnswerStream(exchange, self.provider, prompt, faults, GENERATING[resource][1])
            await answer_stream.run(key, overrides)
            return
        await strike_before_answer(exchange, faults)
        if method == "GET" and resource == "responses" and headers.get("upgrade", "").lower() == "websocket":
            await self._serve_socket(exchange, faults, key)
            return
        if method == "GET" and resource.startswith("responses/"):
            query = dict(parse_qsl(exchange.query))
            stored = self.provider.stored.get(resource.partition("/")[2])
            if stored is None or query.get("stream") != "true":
                raise ApiError(404, f"No stream is stored for {resource}.", code="not_found")
            answer_stream = AnswerStream(exchange, self.provider, stored.prompt, faults, GENERATING["responses"][1])
            await answer_stream.send_stored(stored, after=int(query.get("starting_after", -1)))
            return
        struck = {fault.kind: fault for fault in reversed(faults)}

        async def work() -> object:
            if "delayed" in struck:
                await asyncio.sleep(struck["delayed"].seconds)
            try:
                return self._resource(exchange, resource)
            except ApiError as error:
                return error

        if "delayed" in struck:
            # It goes on when its client has left.
            task = asyncio.get_running_loop().create_task(work())
            self._working.add(task)
            task.add_done_callback(self._working.discard)
            answer = await asyncio.shield(task)
        else:
            answer = await work()
        if "lost_answer" in struck:
            exchange.abort()
            return
        if "slow_headers" in struck:
            await asyncio.sleep(struck["slow_headers"].seconds)
        if isinstance(answer, ApiError):
            raise answer
        await self._send(exchange, answer)

    async def _serve_socket(self, exchange: ServedExchange, faults: Sequence[Fault], key: str) -> None:
        try:
            from fastlane.emulator._socket import ResponsesSocket
        except ImportError as error:
            raise ApiError(501, str(MissingExtraError("realtime", "websockets")), code="missing_extra") from error
        slow = next((fault.seconds for fault in faults if fault.kind == "slow_reader"), 0.0)
        await ResponsesSocket(exchange, self.provider, key, reads_after_s=slow).run()

    def _resource(self, exchange: ServedExchange, resource: str) -> object:
        """Return what an endpoint that generates nothing answers; bytes are a file's content. Raises ApiError."""
        provider, batches, record = self.provider, self._batches, exchange.record
        match (record.method, *resource.split("/")):
            case "POST", "embeddings":
                answer, record.prompt_tokens = embeddings(self._read_body(exchange), provider)
                record.model = answer["model"]
                return answer
            case "GET", "models":
                return {"object": "list", "data": [one_model(provider, each) for each in provider.model.served]}
            case "GET", "models", *name:
                return one_model(provider, unquote("/".join(name)))
            case "POST", "files":
                return batches.upload(self._decompressed(exchange), record.content_type)
            case "GET", "files":
                return batches.list_files(exchange.query)
            case "GET", "files", file_id:
                return batches.file(file_id).record
            case "GET", "files", file_id, "content":
                return batches.file(file_id).content
            case "DELETE", "files", file_id:
                return batches.delete_file(file_id)
            case "POST", "batches":
                return batches.create(self._read_body(exchange))
            case "GET", "batches":
                return batches.list_batches(exchange.query)
            case "GET", "batches", batch_id:
                return batches.batch(batch_id).record
            case "POST", "batches", batch_id, "cancel":
                return batches.cancel(batch_id)
        raise _unknown(exchange)

    def _control(self, exchange: ServedExchange) -> object:
        """Do what a request to one of the emulator's own endpoints asks. Raises ApiError."""
        provider, batches = self.provider, self._batches
        try:
            match exchange.record.method, exchange.path.removeprefix(CONTROL_PREFIX):
                case "GET", "log":
                    return [record.to_json() for record in provider.records]
                case "GET", "offline":
                    return batches.log()
                case "POST", "clear":
                    provider.records.clear()
                    batches.lines.clear()
                case "POST", "forget":
                    provider.cache.clear()
                case "POST", "reset":
                    provider.reset()
                    batches.clear()
                case "PUT", "faults":
                    provider.faults = FaultRules(read_faults(json.loads(exchange.body)))
                    return {"faults": [str(rule) for rule in provider.faults.rules]}
                case "PUT", "answers":
                    provider.answers = deque(map(str, json.loads(exchange.body)))
                case "PUT", "settings":
                    provider.change(json.loads(exchange.body))
                    return {"settings": provider.model.to_json()}
                case _:
                    raise _unknown(exchange)
        except (ConfigurationError, ValueError, TypeError, AttributeError) as error:
            raise ApiError(400, str(error), code="invalid_setting") from error
        return {}

    def _prompt(
        self, exchange: ServedExchange, faults: Sequence[Fault], resource: str, deployment: str | None
    ) -> GenerationRequest:
        misparse = next((fault for fault in faults if fault.kind == "misparse"), None)
        if misparse and misparse.value == "all":
            body: dict[str, Any] = {"model": self.provider.model.served[0]}
        else:
            body = self._read_body(exchange)
        if misparse:
            body.update(EMPTY[resource])
        if deployment is not None:
            body.setdefault("model", deployment)
        return read_request(resource, body, self.provider)

    def _decompressed(self, exchange: ServedExchange) -> bytes:
        if exchange.record.bytes_in > _request.MAXIMUM_BYTES:
            raise ApiError(413, f"The body exceeds {_request.MAXIMUM_BYTES} bytes.", code="body_too_large")
        body = _request.decompress(exchange.body, exchange.headers, self.provider.model.dialect)
        exchange.record.bytes_in_decoded = len(body)
        return body

    def _read_body(self, exchange: ServedExchange) -> dict[str, Any]:
        return _request.parse(self._decompressed(exchange), exchange.headers, self.provider.model.dialect)

    async def _send(
        self, exchange: ServedExchange, answer: object, *, status: int = 200, headers: Headers = ()
    ) -> None:
        """Send a whole response: a file's content or JSON as bytes, or a value as JSON."""
        is_file = isinstance(answer, bytes) and status == 200
        body = answer if isinstance(answer, bytes) else compact(answer).encode()
        own = [
            ("content-type", "application/octet-stream" if is_file else "application/json"),
            ("content-length", str(len(body))),
            ("x-request-id", exchange.record.request_id),
            *headers,
        ]
        exchange.send_headers(status, self.provider.model.dialect.with_headers(own))
        if exchange.record.method != "HEAD":
            # A piece at a time, so that others have their turn.
            for at in range(0, len(body), _PIECE):
                if at:
                    await asyncio.sleep(0)
                    await exchange.drained()
                exchange.send(body[at : at + _PIECE])
        exchange.end()


def _unknown(exchange: ServedExchange) -> ApiError:
    return ApiError(404, f"Invalid URL ({exchange.record.method} {exchange.path})", code="unknown_url")


def base_url(host: str, port: int, *, tls: bool) -> str:
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/v1"
