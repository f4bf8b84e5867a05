"""`request()` and `post()` of the clients: run the flow of a call with the driver for threads or for tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..compat.clients import ASYNC_CLIENTS, SYNC_CLIENTS
from ..compat.requests import post_options
from ..compat.resources import OWN_POSTS
from ..compat.streams import observing
from ..decode.probes import OwnMethods
from ..engine.drivers import async_run, run
from ..engine.flow import CallState, run_call, wrapped_request
from ..engine.route_requests import refuse_route

if TYPE_CHECKING:
    from ..engine.shell import Shell

_POST, _ASYNC_POST = OwnMethods(("post",), *SYNC_CLIENTS), OwnMethods(("post",), *ASYNC_CLIENTS)
_POST_ARGUMENTS = frozenset({"body", "cast_to", "options", "stream", "stream_cls"})
_POST_NEEDS = frozenset({"body", "cast_to"})


def _is_plain_post(shell: Shell | None, post: OwnMethods, arguments: dict[str, Any]) -> bool:
    """Whether it posts JSON as openai's resources do, by a `post()` that nobody has replaced."""
    return (
        shell is not None
        and shell.requests.pass_nobody_by
        and post.are_own
        and _POST_NEEDS <= arguments.keys() <= _POST_ARGUMENTS
        and type(arguments["body"]) is dict
    )


def _state_of(client: Any, cast_to: Any, options: Any, stream: bool, stream_cls: Any) -> CallState:
    """Begin to observe a call."""
    shell, assigned = client._fastlane, None
    if shell.arms is not None:
        # The call goes to an arm of the client's experiment, and through the plays of that arm's client.
        client, assigned = shell.arms.choose(client, options)
        shell = client._fastlane
    observation = shell.begin(client.base_url, options, stream=stream, experiment=assigned)
    if stream and stream_cls is not None:
        stream_cls = observing(stream_cls)
    return CallState(client, cast_to, stream, stream_cls, observation)


class Calls:
    """The calls of a sync client."""

    _fastlane: Shell | None

    def post(self, path: str, **arguments: Any) -> Any:
        """Post a body, as `post()` of openai's client."""
        if not _is_plain_post(self._fastlane, _POST, arguments):
            return super().post(path, **arguments)  # type: ignore[misc]
        options = post_options(path, arguments["body"], arguments.get("options", {}))
        stream, stream_cls = arguments.get("stream", False), arguments.get("stream_cls")
        return self.request(arguments["cast_to"], options, stream=stream, stream_cls=stream_cls)

    def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        """Make a call, as `request()` of openai's client."""
        if self._fastlane is None:
            refuse_route(options)
            return super().request(cast_to, options, stream=stream, stream_cls=stream_cls)  # type: ignore[misc]
        return run(run_call(_state_of(self, cast_to, options, stream, stream_cls), options))

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

    _fastlane: Shell | None

    async def post(self, path: str, **arguments: Any) -> Any:
        """Post a body, as `post()` of openai's client."""
        if not _is_plain_post(self._fastlane, _ASYNC_POST, arguments):
            return await super().post(path, **arguments)  # type: ignore[misc]
        options = post_options(path, arguments["body"], arguments.get("options", {}))
        stream, stream_cls = arguments.get("stream", False), arguments.get("stream_cls")
        return await self.request(arguments["cast_to"], options, stream=stream, stream_cls=stream_cls)

    async def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        """Make a call, as `request()` of openai's client."""
        if self._fastlane is None:
            refuse_route(options)
            return await super().request(cast_to, options, stream=stream, stream_cls=stream_cls)  # type: ignore[misc]
        return await async_run(run_call(_state_of(self, cast_to, options, stream, stream_cls), options))

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


OWN_POSTS.update((Calls.post, AsyncCalls.post))
