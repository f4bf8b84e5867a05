"""`request()` and `post()` of the clients, which run the flow of a call in the driver for threads or tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..compat.clients import ASYNC_CLIENTS, SYNC_CLIENTS
from ..compat.requests import OwnMethods, post_options
from ..compat.resources import OWN_POSTS
from ..engine.drivers import async_run, run
from ..engine.flow import begin_call, model_checks, run_call, wrapped_request
from ..plays.routing.catalog.route import check_route, refuse_route

if TYPE_CHECKING:
    from ..engine.client_state import ClientState

_POST, _ASYNC_POST = (OwnMethods(*[(kind, ("post",)) for kind in kinds]) for kinds in (SYNC_CLIENTS, ASYNC_CLIENTS))
_POST_ARGUMENTS = frozenset({"body", "cast_to", "options", "stream", "stream_cls"})


def _is_json_post(arguments: dict[str, Any]) -> bool:
    """Return whether `post()` was called to post JSON, with the arguments that openai's resources pass."""
    return "cast_to" in arguments and arguments.keys() <= _POST_ARGUMENTS and type(arguments.get("body")) is dict


class Calls:
    """The calls of a sync client."""

    _fastlane: ClientState | None

    def post(self, path: str, **arguments: Any) -> Any:
        """Post a body, as `post()` of openai's client."""
        client_state = self._fastlane
        if client_state is None or not (
            client_state.requests.bypasses_no_override and _POST.are_own and _is_json_post(arguments)
        ):
            return super().post(path, **arguments)  # type: ignore[misc]
        options = post_options(path, arguments["body"], arguments.get("options", {}))
        stream, stream_cls = arguments.get("stream", False), arguments.get("stream_cls")
        return self.request(arguments["cast_to"], options, stream=stream, stream_cls=stream_cls)

    def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        """Make a call, as `request()` of openai's client."""
        if self._fastlane is None:
            refuse_route(options)
            return super().request(cast_to, options, stream=stream, stream_cls=stream_cls)  # type: ignore[misc]
        return run(run_call(begin_call(self, cast_to, options, stream=stream, stream_cls=stream_cls), options))

    @property
    def stock_request(self) -> Any:
        """The `request()` of openai's class, or its replacement."""
        return super().request  # type: ignore[misc]

    def _send_request(self, request: Any, *, stream: bool, **arguments: Any) -> Any:
        wrapped = wrapped_request.get()
        send: Any = super()._send_request  # type: ignore[misc]
        if wrapped is None or wrapped.client is not self:
            return send(request, stream=stream, **arguments)
        return run(wrapped.send(request, stream=stream, send_request=send, arguments=arguments))


class AsyncCalls:
    """The calls of an async client."""

    _fastlane: ClientState | None

    async def post(self, path: str, **arguments: Any) -> Any:
        """Post a body, as `post()` of openai's client."""
        client_state = self._fastlane
        if client_state is None or not (
            client_state.requests.bypasses_no_override and _ASYNC_POST.are_own and _is_json_post(arguments)
        ):
            return await super().post(path, **arguments)  # type: ignore[misc]
        options = post_options(path, arguments["body"], arguments.get("options", {}))
        stream, stream_cls = arguments.get("stream", False), arguments.get("stream_cls")
        return await self.request(arguments["cast_to"], options, stream=stream, stream_cls=stream_cls)

    async def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        """Make a call, as `request()` of openai's client."""
        if self._fastlane is None:
            refuse_route(options)
            return await super().request(cast_to, options, stream=stream, stream_cls=stream_cls)  # type: ignore[misc]
        return await async_run(
            run_call(begin_call(self, cast_to, options, stream=stream, stream_cls=stream_cls), options)
        )

    @property
    def stock_request(self) -> Any:
        """The `request()` of openai's class, or its replacement."""
        return super().request  # type: ignore[misc]

    async def _send_request(self, request: Any, *, stream: bool, **arguments: Any) -> Any:
        wrapped = wrapped_request.get()
        send: Any = super()._send_request  # type: ignore[misc]
        if wrapped is None or wrapped.client is not self:
            return await send(request, stream=stream, **arguments)
        return await async_run(wrapped.send(request, stream=stream, send_request=send, arguments=arguments))


OWN_POSTS.update((Calls.post, AsyncCalls.post))
model_checks.append(check_route)
