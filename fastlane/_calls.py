"""One call of a client: observed, planned, its first attempt sent the short way, and everything else left to openai."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai

from ._answers import UNDECODED, decode, open_stream
from ._body import watch_body
from ._call_options import post_options
from ._context import current_observation, restore
from ._send import asend, layers_to_pass, send
from ._shell import Shell
from ._stream import observing

if TYPE_CHECKING:
    from ._observation import Observation

# Instrumentations put their own in the place of these.
_SYNC, _ASYNC = openai._base_client.SyncAPIClient, openai._base_client.AsyncAPIClient
_STOCK = {function: getattr(_SYNC, function) for function in ("post", "request")}
_ASYNC_STOCK = {function: getattr(_ASYNC, function) for function in ("post", "request")}

_POST_ARGUMENTS = frozenset({"body", "cast_to", "options", "stream", "stream_cls"})

_THE_LONG_WAY = object()


class _Calls:
    """What the synchronous and the asynchronous form have in common."""

    _fastlane: Shell | None

    def _build_request(self, options: Any, *, retries_taken: int = 0) -> Any:
        stock = super()._build_request  # type: ignore[misc]
        observation = current_observation.get()
        if observation is None or self._fastlane is None:
            return stock(options, retries_taken=retries_taken)
        if observation.first_attempt is not None:
            return observation.first_attempt[0]
        requests = self._fastlane.requests
        body = observation.body(options) if requests.is_wanted else None
        if body is None:
            return stock(options, retries_taken=retries_taken)

        def build() -> Any:
            # The stock client's own way need not write the body once more.
            encoded = options.model_copy(update={"json_data": body, "extra_json": None})
            return stock(encoded, retries_taken=retries_taken)

        return requests.build(self, options, retries_taken, body, build)


class Calls(_Calls):
    """The calls of a synchronous client."""

    _client: Any

    def post(self, path: str, **arguments: Any) -> Any:
        body = arguments.get("body")
        changed = openai.OpenAI.post is not _STOCK["post"]
        if changed or type(body) is not dict or not arguments.keys() <= _POST_ARGUMENTS:
            return super().post(path, **arguments)  # type: ignore[misc]
        options = post_options(path, body, arguments.get("options") or {})
        stream, stream_cls = arguments.get("stream", False), arguments.get("stream_cls")
        return self.request(arguments["cast_to"], options, stream=stream, stream_cls=stream_cls)

    def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        shell = self._fastlane
        if shell is None:
            return super().request(cast_to, options, stream=stream, stream_cls=stream_cls)  # type: ignore[misc]
        observation = shell.begin(self._base_url, options, stream=stream)  # type: ignore[attr-defined]
        token = current_observation.set(observation)
        try:
            options = shell.plan(observation, options, self._custom_headers)  # type: ignore[attr-defined]
            if stream and stream_cls is not None:
                stream_cls = observing(stream_cls)
            result = self._first_attempt(observation, cast_to, options, stream=stream, stream_cls=stream_cls)
            if result is _THE_LONG_WAY:
                result = super().request(cast_to, options, stream=stream, stream_cls=stream_cls)  # type: ignore[misc]
        except BaseException as error:
            observation.failed(error)
            observation.finish()
            raise
        finally:
            restore(current_observation, token)
        shell.returned(observation, result)
        return result

    def _first_attempt(
        self, observation: Observation, cast_to: Any, options: Any, *, stream: bool, stream_cls: Any
    ) -> Any:
        """The result of a call whose first attempt succeeds.

        What openai's own loop does for such a call, without the steps that have nothing to do. Any other attempt is
        shown to that loop as its own first, for it to decide what comes next.
        """
        request = None
        if openai.OpenAI.request is _STOCK["request"]:
            request = self._fastlane.requests.first(self, options, observation)  # type: ignore[union-attr]
        if request is None:
            return _THE_LONG_WAY
        try:
            response = self._send_request(request, stream=stream)
        except Exception as error:  # noqa: BLE001 - raised again where openai's loop sends its first attempt
            observation.attempted(request, None, error)
            return _THE_LONG_WAY
        if not response.is_success:
            observation.attempted(request, response, None)
            return _THE_LONG_WAY
        return self._process_response(
            cast_to=cast_to, options=options, response=response, stream=stream, stream_cls=stream_cls, retries_taken=0
        )

    def _send_request(self, request: Any, *, stream: bool, **kwargs: Any) -> Any:
        observation = current_observation.get()
        if observation is None:
            return super()._send_request(request, stream=stream, **kwargs)  # type: ignore[misc]
        if observation.first_attempt is not None:
            return observation.take_first_attempt()
        Shell.attach(observation, request, asynchronous=False)
        try:
            layers = layers_to_pass(self, self._client, request, kwargs)
            if layers is None:
                response = super()._send_request(request, stream=stream, **kwargs)  # type: ignore[misc]
            else:
                response = send(layers, self._client, request, stream=stream)
        except BaseException as error:
            observation.attempt_failed(error)
            raise
        observation.attempt_answered(response)
        if stream and not response.is_closed and response.status_code < 400:
            watch_body(response, observation, asynchronous=False)
        return response

    def _process_response(
        self, *, cast_to: Any, options: Any, response: Any, stream: bool, stream_cls: Any, **more: Any
    ) -> Any:
        if current_observation.get() is not None:
            if stream:
                result = open_stream(self, stream_cls, options, response)
            else:
                result = decode(self, cast_to, options, response)
            if result is not UNDECODED:
                return result
        return super()._process_response(  # type: ignore[misc]
            cast_to=cast_to, options=options, response=response, stream=stream, stream_cls=stream_cls, **more
        )


class AsyncCalls(_Calls):
    """The calls of an asynchronous client."""

    _client: Any

    async def post(self, path: str, **arguments: Any) -> Any:
        body = arguments.get("body")
        changed = openai.AsyncOpenAI.post is not _ASYNC_STOCK["post"]
        if changed or type(body) is not dict or not arguments.keys() <= _POST_ARGUMENTS:
            return await super().post(path, **arguments)  # type: ignore[misc]
        options = post_options(path, body, arguments.get("options") or {})
        stream, stream_cls = arguments.get("stream", False), arguments.get("stream_cls")
        return await self.request(arguments["cast_to"], options, stream=stream, stream_cls=stream_cls)

    async def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        shell = self._fastlane
        if shell is None:
            return await super().request(cast_to, options, stream=stream, stream_cls=stream_cls)  # type: ignore[misc]
        observation = shell.begin(self._base_url, options, stream=stream)  # type: ignore[attr-defined]
        token = current_observation.set(observation)
        try:
            options = shell.plan(observation, options, self._custom_headers)  # type: ignore[attr-defined]
            if stream and stream_cls is not None:
                stream_cls = observing(stream_cls)
            result = await self._first_attempt(observation, cast_to, options, stream=stream, stream_cls=stream_cls)
            if result is _THE_LONG_WAY:
                result = await super().request(  # type: ignore[misc]
                    cast_to, options, stream=stream, stream_cls=stream_cls
                )
        except BaseException as error:
            observation.failed(error)
            observation.finish()
            raise
        finally:
            restore(current_observation, token)
        shell.returned(observation, result)
        return result

    async def _first_attempt(
        self, observation: Observation, cast_to: Any, options: Any, *, stream: bool, stream_cls: Any
    ) -> Any:
        """See `Calls._first_attempt`."""
        request = None
        if openai.AsyncOpenAI.request is _ASYNC_STOCK["request"]:
            request = self._fastlane.requests.first(self, options, observation)  # type: ignore[union-attr]
        if request is None:
            return _THE_LONG_WAY
        try:
            response = await self._send_request(request, stream=stream)
        except Exception as error:  # noqa: BLE001 - raised again where openai's loop sends its first attempt
            observation.attempted(request, None, error)
            return _THE_LONG_WAY
        if not response.is_success:
            observation.attempted(request, response, None)
            return _THE_LONG_WAY
        return await self._process_response(
            cast_to=cast_to, options=options, response=response, stream=stream, stream_cls=stream_cls, retries_taken=0
        )

    async def _send_request(self, request: Any, *, stream: bool, **kwargs: Any) -> Any:
        observation = current_observation.get()
        if observation is None:
            return await super()._send_request(request, stream=stream, **kwargs)  # type: ignore[misc]
        if observation.first_attempt is not None:
            return observation.take_first_attempt()
        Shell.attach(observation, request, asynchronous=True)
        try:
            layers = layers_to_pass(self, self._client, request, kwargs)
            if layers is None:
                response = await super()._send_request(request, stream=stream, **kwargs)  # type: ignore[misc]
            else:
                response = await asend(layers, self._client, request, stream=stream)
        except BaseException as error:
            observation.attempt_failed(error)
            raise
        observation.attempt_answered(response)
        if stream and not response.is_closed and response.status_code < 400:
            watch_body(response, observation, asynchronous=True)
        return response

    async def _process_response(
        self, *, cast_to: Any, options: Any, response: Any, stream: bool, stream_cls: Any, **more: Any
    ) -> Any:
        if current_observation.get() is not None:
            if stream:
                result = open_stream(self, stream_cls, options, response)
            else:
                result = decode(self, cast_to, options, response)
            if result is not UNDECODED:
                return result
        return await super()._process_response(  # type: ignore[misc]
            cast_to=cast_to, options=options, response=response, stream=stream, stream_cls=stream_cls, **more
        )
