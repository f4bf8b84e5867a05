"""`request()` of the clients, which runs the flow of a call in the driver for threads or tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..engine.drivers import async_run, run
from ..engine.flow import begin_call, model_checks, run_call, wrapped_request
from ..plays.routing.catalog.route import check_route, refuse_route

if TYPE_CHECKING:
    from ..engine.client_state import ClientState


class Calls:
    """The calls of a sync client."""

    _fastlane: ClientState | None

    def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        """Make a call, as `request()` of openai's client."""
        if self._fastlane is None:
            refuse_route(options)
            return super().request(cast_to, options, stream=stream, stream_cls=stream_cls)  # type: ignore[misc]
        return run(run_call(begin_call(self, cast_to, options, stream=stream, stream_cls=stream_cls), options))

    @property
    def stock_request(self) -> Any:
        """The `request()` of openai's class, or what somebody has put in its place."""
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
        """The `request()` of openai's class, or what somebody has put in its place."""
        return super().request  # type: ignore[misc]

    async def _send_request(self, request: Any, *, stream: bool, **arguments: Any) -> Any:
        wrapped = wrapped_request.get()
        send: Any = super()._send_request  # type: ignore[misc]
        if wrapped is None or wrapped.client is not self:
            return await send(request, stream=stream, **arguments)
        return await async_run(wrapped.send(request, stream=stream, send_request=send, arguments=arguments))


model_checks.append(check_route)
