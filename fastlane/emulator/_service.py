"""The provider's HTTP surface: which path means what, and errors in OpenAI's shape."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from fastlane._clock import now_ns
from fastlane.emulator import _bodies, _offline_routes, _prompt
from fastlane.emulator._answer import AnswerEnded, AnswerStream, strike_before_answer
from fastlane.emulator._batches import Batches
from fastlane.emulator._connection import ServerConnection
from fastlane.emulator._control import control
from fastlane.emulator._endpoints import GENERATING
from fastlane.emulator._errors import ApiError
from fastlane.emulator._exchange import Request, ServerExchange
from fastlane.emulator._faults import Fault
from fastlane.emulator._files import StoredFile
from fastlane.emulator._log import OpenRecord
from fastlane.emulator._overrides import Overrides, read_overrides
from fastlane.emulator._provider import Provider
from fastlane.emulator._resources import embeddings, list_models, one_model

CONTROL_PREFIX = "/emulator/"

_MEDIA_TYPES = (("json", "application/json"), ("msgpack", "application/vnd.msgpack"))
# OpenAI's own base, Azure's two, and a deployment's name in the path.
_API_PATH = re.compile(r"^/(?:openai/v1|openai|v1)/(?:deployments/(?P<deployment>[^/]+)/)?(?P<resource>.+?)/?$")


class ProviderService:
    """Answers requests for one provider."""

    def __init__(self, provider: Provider, batches: Batches | None = None) -> None:
        self.provider = provider
        self.batches = batches or Batches(provider)
        self._delayed: set[asyncio.Task[object]] = set()

    def open_record(
        self, connection: ServerConnection, *, method: str, path: str, headers: Mapping[str, str], stream_id: int
    ) -> OpenRecord:
        """Begin the record of a request whose headers came in; the emulator's own control requests leave none."""
        logged = not path.startswith(CONTROL_PREFIX)
        number = -1
        if logged:
            connection.requests += 1
            number = self.provider.ledger.next_number()
        record = OpenRecord(
            sequence_number=number,
            request_id=f"req_{self.provider.seed:x}_" + (f"{number:012d}" if logged else "control"),
            method=method,
            path=path,
            http_version=connection.http_version,
            connection_id=connection.connection_id,
            stream_id=stream_id,
            connection_request_number=connection.requests,
            header_names=tuple(headers),
            received_ns=now_ns(),
            tag=headers.get("x-emulator-tag"),
            content_type=headers.get("content-type"),
            content_encoding=headers.get("content-encoding"),
        )
        if logged:
            self.provider.ledger.add(record)
            connection.last_record = record
        return record

    async def answer(self, exchange: ServerExchange, request: Request) -> None:
        """Answer a request. A bug becomes a 500 and a traceback on stderr."""
        try:
            await self._route(exchange, request)
        except ApiError as error:
            self._send_error(exchange, error)
        except (AnswerEnded, ConnectionError):
            pass
        # Whatever it is, the client gets an answer and the server lives on.
        except Exception:  # noqa: BLE001
            traceback.print_exc(file=sys.stderr)
            if exchange.record.status is None:
                self._send_error(
                    exchange, ApiError(500, "The emulator has a bug; see its stderr.", type="server_error")
                )
            else:
                exchange.abort()

    async def _route(self, exchange: ServerExchange, request: Request) -> None:
        if request.path.startswith(CONTROL_PREFIX):
            self._send_json(exchange, control(self.provider, self.batches, request))
            return
        if not (request.headers.get("authorization") or request.headers.get("api-key")):
            raise ApiError(
                401,
                "You didn't provide an API key. You need to provide your API key in an Authorization header.",
                code="invalid_api_key",
            )
        matched = _API_PATH.match(request.path)
        overrides = read_overrides(request.headers)
        target = f"{request.method} {matched['resource'] if matched else request.path}"
        if matched and request.method == "POST" and matched["resource"] in GENERATING:
            await self._generate(exchange, request, overrides, matched["resource"], matched["deployment"])
            return
        faults = self._faults(exchange.record, overrides, target)
        await strike_before_answer(exchange, faults)
        struck = {fault.kind: fault for fault in reversed(faults)}
        answer: object
        try:
            answer = await self._work(exchange.record, request, matched["resource"] if matched else "", struck)
        except ApiError as error:
            answer = error
        if "lost_answer" in struck:
            exchange.abort()
            return
        if "slow_headers" in struck:
            await asyncio.sleep(float(struck["slow_headers"].value or 0))
        if isinstance(answer, ApiError):
            raise answer
        if isinstance(answer, StoredFile):
            await _offline_routes.send_content(exchange, answer, self.provider.dialect)
        else:
            self._send_json(exchange, answer)

    async def _work(self, record: OpenRecord, request: Request, resource: str, struck: Mapping[str, Fault]) -> object:
        """Do what a request asks of an endpoint that generates nothing. Raises ApiError."""
        if "delayed" not in struck:
            return await self._resource(record, request, resource)

        async def later() -> object:
            await asyncio.sleep(float(struck["delayed"].value or 0))
            return await self._resource(record, request, resource)

        # It goes on when its client has left, and then nobody asks what came of it.
        task = asyncio.get_running_loop().create_task(later())
        self._delayed.add(task)
        task.add_done_callback(self._delayed_is_over)
        return await asyncio.shield(task)

    def _delayed_is_over(self, task: asyncio.Task[object]) -> None:
        self._delayed.discard(task)
        if not task.cancelled():
            task.exception()

    def close(self) -> None:
        """Stop what goes on beside requests."""
        self.batches.close()
        for task in self._delayed:
            task.cancel()

    async def _resource(self, record: OpenRecord, request: Request, resource: str) -> object:
        """Return what an endpoint that generates nothing answers. Raises ApiError."""
        provider = self.provider
        collection, _, name = resource.partition("/")
        match request.method, collection, name:
            case "POST", "embeddings", "":
                answer, tokens = embeddings(self.read_body(record, request), provider)
                record.model, record.prompt_tokens = answer["model"], tokens
                return answer
            case "GET", "models", "":
                return list_models(provider)
            case "GET", "models", _:
                return one_model(provider, unquote(name))
            case "POST", "files", "":
                return await _offline_routes.upload(
                    self.batches, request, record.content_type, lambda given: self.decompressed(record, given)
                )
        answered = _offline_routes.answer(self.batches, request, resource, lambda: self.read_body(record, request))
        if answered is not None:
            return answered
        raise ApiError(404, f"Invalid URL ({request.method} {request.path})", code="unknown_url")

    def _faults(self, record: OpenRecord, overrides: Overrides, target: str) -> tuple[Fault, ...]:
        rules, random = self.provider.faults, self.provider.fault_random
        encoded = _bodies.is_encoded(record.content_type, record.content_encoding)
        faults = rules.striking(overrides.faults, tag=overrides.tag, random=random, encoded=encoded, target=target)
        record.fault = ",".join(map(str, faults)) or None
        return faults

    async def _generate(
        self, exchange: ServerExchange, request: Request, overrides: Overrides, resource: str, deployment: str | None
    ) -> None:
        record = exchange.record
        faults = self._faults(record, overrides, f"POST {resource}")
        # What breaks on the mere sight of an encoded body does so too where the body is no valid request.
        await strike_before_answer(exchange, [fault for fault in faults if fault.strikes_unread])
        misparse = next((fault for fault in faults if fault.kind == "misparse"), None)
        if misparse and misparse.value == "all":
            body: dict[str, Any] = {"model": self.provider.model.served[0]}
        else:
            body = self.read_body(record, request)
        for field in self.provider.dialect.refused_fields:
            if field in body:
                raise ApiError(400, f"Unrecognized request argument supplied: {field}", param=field)
        if misparse:
            body.update(_prompt.EMPTY[resource])
        if deployment is not None:
            body.setdefault("model", deployment)
        read, make_reply = GENERATING[resource]
        account = self.provider.intake.account_of(request.headers)
        await AnswerStream(exchange, self.provider, read(body), overrides, faults, make_reply, account=account).run()

    def decompressed(self, record: OpenRecord, request: Request) -> bytes:
        """Undo a body's compression. Raises ApiError."""
        if not request.upload and record.bytes_in > _bodies.MAXIMUM_BYTES:
            raise ApiError(413, f"The body exceeds {_bodies.MAXIMUM_BYTES} bytes.", code="body_too_large")
        given = b"".join(request.upload) if request.upload else request.body
        accepted, refusal = self.provider.accepted_encodings, self.provider.encoding_refusal_status
        body = _bodies.decompress(given, record.content_encoding, accepted=accepted, refusal_status=refusal)
        record.bytes_in_decoded = len(body)
        return body

    def read_body(self, record: OpenRecord, request: Request) -> dict[str, Any]:
        """Read a body by its headers. Raises ApiError."""
        body = self.decompressed(record, request)
        accepted, refusal = self.provider.accepted_encodings, self.provider.encoding_refusal_status
        return _bodies.parse(body, record.content_type, accepted=accepted, refusal_status=refusal)

    def _send_error(self, exchange: ServerExchange, error: ApiError) -> None:
        """Send an error as a whole answer."""
        headers = error.headers
        if error.status == 415 and self.provider.dialect.says_accepted:
            headers = (*headers, self._accepted(error))
        self._send(exchange, error.status, error.body(), headers)

    def _accepted(self, error: ApiError) -> tuple[str, str]:
        """Return the header that names what would have been taken."""
        accepted = self.provider.accepted_encodings
        if error.code == "unsupported_content_type":
            return "accept", ", ".join(media_type for name, media_type in _MEDIA_TYPES if name in accepted)
        # A fault that refuses every encoded body takes none.
        takes_gzip = error.code == "unsupported_content_encoding" and "gzip" in accepted
        return "accept-encoding", "gzip" if takes_gzip else "identity"

    def _send_json(self, exchange: ServerExchange, value: object) -> None:
        """Send a value as a whole answer."""
        self._send(exchange, 200, json.dumps(value, separators=(",", ":")).encode(), ())

    def _send(self, exchange: ServerExchange, status: int, body: bytes, headers: Sequence[tuple[str, str]]) -> None:
        own = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("x-request-id", exchange.record.request_id),
            *headers,
        ]
        exchange.send_headers(status, self.provider.dialect.spoken(own))
        if exchange.record.method != "HEAD":
            exchange.send(body)
        exchange.end()
