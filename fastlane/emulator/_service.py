"""The provider's HTTP surface: which path means what, errors in OpenAI's shape, and the emulator's own endpoints."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import traceback
from collections import deque
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from fastlane.emulator import _prompt, _request
from fastlane.emulator._answer import AnswerEnded, AnswerStream, strike_before_answer
from fastlane.emulator._batches import Batches
from fastlane.emulator._endpoints import GENERATING, embeddings, list_models, one_model, read_request
from fastlane.emulator._faults import Fault, FaultRules
from fastlane.emulator._http import CONTROL_PREFIX, Headers, Request, ServedExchange
from fastlane.emulator._log import RequestLog
from fastlane.emulator._provider import Provider
from fastlane.emulator._reply import compact
from fastlane.emulator._request import ApiError, Overrides, read_overrides

from ..errors import ConfigurationError

# OpenAI's own base, Azure's two, and a deployment's name in the path.
_API_PATH = re.compile(r"^/(?:openai/v1|openai|v1)/(?:deployments/(?P<deployment>[^/]+)/)?(?P<resource>.+?)/?$")
_PIECE = 262_144


class ProviderService:
    """Answers requests for one provider."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.batches = Batches(provider)
        self._delayed: set[asyncio.Task[object]] = set()

    def close(self) -> None:
        """Stop what goes on beside requests."""
        self.batches.close()
        for task in self._delayed:
            task.cancel()

    async def answer(self, exchange: ServedExchange, request: Request) -> None:
        """Answer a request. A bug becomes a 500 and a traceback on stderr."""
        try:
            await self._route(exchange, request)
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

    async def _route(self, exchange: ServedExchange, request: Request) -> None:
        if request.path.startswith(CONTROL_PREFIX):
            await self._send(exchange, self._control(request))
            return
        if not (request.headers.get("authorization") or request.headers.get("api-key")):
            raise ApiError(
                401,
                "You didn't provide an API key. You need to provide your API key in an Authorization header.",
                code="invalid_api_key",
            )
        matched = _API_PATH.match(request.path)
        resource = matched["resource"] if matched else ""
        overrides = read_overrides(request.headers)
        faults = self.provider.faults.striking(
            overrides.fault,
            tag=overrides.tag,
            random=self.provider.fault_random,
            encoded=_request.is_encoded(request.headers),
            target=f"{request.method} {resource or request.path}",
        )
        exchange.record.fault = ",".join(map(str, faults)) or None
        if matched and request.method == "POST" and resource in GENERATING:
            await self._generate(exchange, request, overrides, faults, resource, matched["deployment"])
            return
        await strike_before_answer(exchange, faults)
        struck = {fault.kind: fault for fault in reversed(faults)}
        answer: object
        try:
            answer = await self._work(exchange.record, request, resource, struck.get("delayed"))
        except ApiError as error:
            answer = error
        if "lost_answer" in struck:
            exchange.abort()
            return
        if "slow_headers" in struck:
            await asyncio.sleep(struck["slow_headers"].seconds)
        if isinstance(answer, ApiError):
            raise answer
        await self._send(exchange, answer)

    async def _work(self, record: RequestLog, request: Request, resource: str, delayed: Fault | None) -> object:
        """Do what a request asks of an endpoint that generates nothing. Raises ApiError."""
        if delayed is None:
            return self._resource(record, request, resource)

        async def later() -> object:
            await asyncio.sleep(delayed.seconds)
            return self._resource(record, request, resource)

        # It goes on when its client has left, and then nobody asks what came of it.
        task = asyncio.get_running_loop().create_task(later())
        self._delayed.add(task)
        task.add_done_callback(self._delayed_is_over)
        return await asyncio.shield(task)

    def _delayed_is_over(self, task: asyncio.Task[object]) -> None:
        self._delayed.discard(task)
        if not task.cancelled():
            task.exception()

    def _resource(self, record: RequestLog, request: Request, resource: str) -> object:
        """Return what an endpoint that generates nothing answers; bytes are a file's content. Raises ApiError."""
        provider, batches, files = self.provider, self.batches, self.batches.files
        match (request.method, *resource.split("/")):
            case "POST", "embeddings":
                answer, record.prompt_tokens = embeddings(self._read_body(record, request), provider)
                record.model = answer["model"]
                return answer
            case "GET", "models":
                return list_models(provider)
            case "GET", "models", *name:
                return one_model(provider, unquote("/".join(name)))
            case "POST", "files":
                return files.upload(self._decompressed(record, request), record.content_type)
            case "GET", "files":
                return files.page(request.query)
            case "GET", "files", file_id:
                return files.one(file_id).record
            case "GET", "files", file_id, "content":
                return files.one(file_id).content
            case "DELETE", "files", file_id:
                return files.delete(file_id)
            case "POST", "batches":
                return batches.create(self._read_body(record, request))
            case "GET", "batches":
                return batches.page(request.query)
            case "GET", "batches", batch_id:
                return batches.one(batch_id).record
            case "POST", "batches", batch_id, "cancel":
                return batches.cancel(batch_id)
        raise _unknown(request)

    def _control(self, request: Request) -> object:
        """Do what a request to one of the emulator's own endpoints asks. Raises ApiError."""
        provider, batches = self.provider, self.batches
        try:
            match request.method, request.path.removeprefix(CONTROL_PREFIX):
                case "GET", "log":
                    return [record.to_json() for record in provider.records]
                case "GET", "offline":
                    return batches.log().to_json()
                case "POST", "clear":
                    provider.records.clear()
                    batches.clear_lines()
                case "POST", "forget":
                    provider.cache.clear()
                case "POST", "reset":
                    provider.reset()
                    batches.clear()
                case "PUT", "faults":
                    provider.faults = FaultRules(Fault.parse(text) for text in json.loads(request.body))
                    return {"faults": [str(rule) for rule in provider.faults.rules]}
                case "PUT", "answers":
                    provider.answers = deque(map(str, json.loads(request.body)))
                case "PUT", "settings":
                    provider.change(json.loads(request.body))
                    return {"settings": provider.model.to_json()}
                case _:
                    raise _unknown(request)
        except (ConfigurationError, ValueError, TypeError, AttributeError) as error:
            raise ApiError(400, str(error), code="invalid_setting") from error
        return {}

    async def _generate(
        self,
        exchange: ServedExchange,
        request: Request,
        overrides: Overrides,
        faults: Sequence[Fault],
        resource: str,
        deployment: str | None,
    ) -> None:
        # What breaks on the mere sight of an encoded body does so too where the body is no valid request.
        await strike_before_answer(exchange, [fault for fault in faults if fault.strikes_unread])
        misparse = next((fault for fault in faults if fault.kind == "misparse"), None)
        if misparse and misparse.value == "all":
            body: dict[str, Any] = {"model": self.provider.model.served[0]}
        else:
            body = self._read_body(exchange.record, request)
        if misparse:
            body.update(_prompt.EMPTY[resource])
        if deployment is not None:
            body.setdefault("model", deployment)
        prompt = read_request(resource, body, self.provider)
        make_reply = GENERATING[resource][1]
        key = request.headers.get("authorization") or request.headers.get("api-key") or ""
        await AnswerStream(exchange, self.provider, prompt, overrides, faults, make_reply).run(key)

    def _decompressed(self, record: RequestLog, request: Request) -> bytes:
        """Undo a body's compression. Raises ApiError."""
        if record.bytes_in > _request.MAXIMUM_BYTES:
            raise ApiError(413, f"The body exceeds {_request.MAXIMUM_BYTES} bytes.", code="body_too_large")
        body = _request.decompress(request.body, request.headers, self.provider.model.dialect)
        record.bytes_in_decoded = len(body)
        return body

    def _read_body(self, record: RequestLog, request: Request) -> dict[str, Any]:
        """Read a body by its headers. Raises ApiError."""
        return _request.parse(self._decompressed(record, request), request.headers, self.provider.model.dialect)

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


def _unknown(request: Request) -> ApiError:
    return ApiError(404, f"Invalid URL ({request.method} {request.path})", code="unknown_url")
