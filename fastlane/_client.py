"""The clients: openai's own, with a shell around `request()` and around every attempt inside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, Unpack

import openai

from ._body import watch_body
from ._call import CallRecord
from ._pipeline import Hook
from ._shell import (
    Shell,
    calls_of,
    carried_settings,
    current_observation,
    http_client_for_copy,
    is_disabled,
    make_pipeline,
    pooled_http_client,
    settings_of,
)
from ._signatures import adopt_signature
from ._stream import observing
from .plays import Play
from .transport import aclose_if_unused, close_if_unused

if TYPE_CHECKING:
    from openai.resources.chat import AsyncChat, Chat
    from openai.resources.responses import AsyncResponses, Responses

    from ._options import (
        AsyncAzureOpenAIOptions,
        AsyncOpenAIOptions,
        AzureOpenAIOptions,
        CopyOptions,
        OpenAIOptions,
    )


class OpenAI(openai.OpenAI):
    """`openai.OpenAI`, observed and with plays: same methods, arguments, results and errors.

    `plays` are the optimisations that are on (default: those that change neither what the model sees nor what comes
    back), `hooks` are called with the `CallRecord` of every call that is over, and `strict=True` raises what a play
    or hook raises instead of logging it. The environment variable FASTLANE_DISABLED=1 gives the stock behaviour.
    """

    _fastlane: Shell | None = None

    def __init__(
        self,
        *,
        plays: Iterable[Play] | None = None,
        hooks: Iterable[Hook] | None = None,
        strict: bool = False,
        **options: Unpack[OpenAIOptions],
    ) -> None:
        pipeline = make_pipeline(plays, hooks, strict)
        if is_disabled():
            super().__init__(**options)
            return
        transport = "caller"
        if options.get("http_client") is None:
            http_client = pooled_http_client(pipeline, options, asynchronous=False)
            transport = "stock" if http_client is None else "fastlane"
            options["http_client"] = http_client
        super().__init__(**options)
        self._fastlane = Shell(pipeline, transport)

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The records of the last 1,000 calls that are over, the oldest first."""
        return calls_of(self._fastlane)

    @property
    def last_call(self) -> CallRecord | None:
        """The record of the last call that is over; None before the first."""
        return self._fastlane.pipeline.last_call if self._fastlane is not None else None

    @cached_property
    def chat(self) -> Chat:
        """Chat completions."""
        if self._fastlane is None:
            return super().chat
        from ._resources import StampedChat

        return StampedChat(self)

    @cached_property
    def responses(self) -> Responses:
        """The Responses API."""
        if self._fastlane is None:
            return super().responses
        from ._resources import StampedResponses

        return StampedResponses(self)  # type: ignore[no-any-return]

    def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        shell = self._fastlane
        if shell is None:
            return super().request(cast_to, options, stream=stream, stream_cls=stream_cls)
        observation = shell.begin(self._base_url, options, stream=stream)
        token = current_observation.set(observation)
        try:
            options = shell.plan(observation, options, self._custom_headers)
            if stream and stream_cls is not None:
                stream_cls = observing(stream_cls)
            result = super().request(cast_to, options, stream=stream, stream_cls=stream_cls)
        except BaseException as error:
            observation.failed(error)
            observation.finish()
            raise
        finally:
            current_observation.reset(token)
        shell.returned(observation, result)
        return result

    def _send_request(self, request: Any, *, stream: bool, **kwargs: Any) -> Any:
        observation = current_observation.get()
        if observation is None:
            return super()._send_request(request, stream=stream, **kwargs)
        Shell.attach(observation, request, "trace")
        try:
            response = super()._send_request(request, stream=stream, **kwargs)
        except BaseException as error:
            observation.attempt_failed(error)
            raise
        observation.attempt_answered(response)
        if stream and not response.is_closed and response.status_code < 400:
            watch_body(response, observation)
        return response

    def with_plays(self, *plays: Play) -> Self:
        """This client with exactly these plays, and a call log of its own."""
        return self.copy(plays=plays)

    def copy(
        self,
        *,
        plays: Iterable[Play] | None = None,
        hooks: Iterable[Hook] | None = None,
        strict: bool | None = None,
        _extra_kwargs: Mapping[str, Any] = {},
        **options: Unpack[CopyOptions],
    ) -> Self:
        """This client with other options; with other plays, hooks or strictness it also gets a call log of its own."""
        carried = carried_settings(self._fastlane, plays, hooks, strict)
        if options.get("http_client") is None and carried is not None:
            options["http_client"] = http_client_for_copy(self, self._fastlane, carried, asynchronous=False)
        copied = super().copy(**options, _extra_kwargs={**_extra_kwargs, **(carried or {})})  # type: ignore[misc]
        Shell.continued(self, copied, shared=carried is None)
        return copied

    # The stock class binds its own function under this name.
    with_options = copy

    def close(self) -> None:
        """Close this client's HTTP client, and its pool's connections if no other client uses them."""
        super().close()
        settings = settings_of(getattr(self, "_client", None))
        if settings is not None:
            close_if_unused(settings)


class AsyncOpenAI(openai.AsyncOpenAI):
    """`openai.AsyncOpenAI`, observed and with plays: see `OpenAI`."""

    _fastlane: Shell | None = None

    def __init__(
        self,
        *,
        plays: Iterable[Play] | None = None,
        hooks: Iterable[Hook] | None = None,
        strict: bool = False,
        **options: Unpack[AsyncOpenAIOptions],
    ) -> None:
        pipeline = make_pipeline(plays, hooks, strict)
        if is_disabled():
            super().__init__(**options)
            return
        transport = "caller"
        if options.get("http_client") is None:
            http_client = pooled_http_client(pipeline, options, asynchronous=True)
            transport = "stock" if http_client is None else "fastlane"
            options["http_client"] = http_client
        super().__init__(**options)
        self._fastlane = Shell(pipeline, transport)

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The records of the last 1,000 calls that are over, the oldest first."""
        return calls_of(self._fastlane)

    @property
    def last_call(self) -> CallRecord | None:
        """The record of the last call that is over; None before the first."""
        return self._fastlane.pipeline.last_call if self._fastlane is not None else None

    @cached_property
    def chat(self) -> AsyncChat:
        """Chat completions."""
        if self._fastlane is None:
            return super().chat
        from ._resources import AsyncStampedChat

        return AsyncStampedChat(self)

    @cached_property
    def responses(self) -> AsyncResponses:
        """The Responses API."""
        if self._fastlane is None:
            return super().responses
        from ._resources import AsyncStampedResponses

        return AsyncStampedResponses(self)  # type: ignore[no-any-return]

    async def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        shell = self._fastlane
        if shell is None:
            return await super().request(cast_to, options, stream=stream, stream_cls=stream_cls)
        observation = shell.begin(self._base_url, options, stream=stream)
        token = current_observation.set(observation)
        try:
            options = shell.plan(observation, options, self._custom_headers)
            if stream and stream_cls is not None:
                stream_cls = observing(stream_cls)
            result = await super().request(cast_to, options, stream=stream, stream_cls=stream_cls)
        except BaseException as error:
            observation.failed(error)
            observation.finish()
            raise
        finally:
            current_observation.reset(token)
        shell.returned(observation, result)
        return result

    async def _send_request(self, request: Any, *, stream: bool, **kwargs: Any) -> Any:
        observation = current_observation.get()
        if observation is None:
            return await super()._send_request(request, stream=stream, **kwargs)
        Shell.attach(observation, request, "atrace")
        try:
            response = await super()._send_request(request, stream=stream, **kwargs)
        except BaseException as error:
            observation.attempt_failed(error)
            raise
        observation.attempt_answered(response)
        if stream and not response.is_closed and response.status_code < 400:
            watch_body(response, observation)
        return response

    def with_plays(self, *plays: Play) -> Self:
        """This client with exactly these plays, and a call log of its own."""
        return self.copy(plays=plays)

    def copy(
        self,
        *,
        plays: Iterable[Play] | None = None,
        hooks: Iterable[Hook] | None = None,
        strict: bool | None = None,
        _extra_kwargs: Mapping[str, Any] = {},
        **options: Unpack[CopyOptions],
    ) -> Self:
        """This client with other options; with other plays, hooks or strictness it also gets a call log of its own."""
        carried = carried_settings(self._fastlane, plays, hooks, strict)
        if options.get("http_client") is None and carried is not None:
            options["http_client"] = http_client_for_copy(self, self._fastlane, carried, asynchronous=True)
        copied = super().copy(**options, _extra_kwargs={**_extra_kwargs, **(carried or {})})  # type: ignore[misc]
        Shell.continued(self, copied, shared=carried is None)
        return copied

    # The stock class binds its own function under this name.
    with_options = copy

    async def close(self) -> None:
        """Close this client's HTTP client, and its pool's connections if no other client uses them."""
        await super().close()
        settings = settings_of(getattr(self, "_client", None))
        if settings is not None:
            await aclose_if_unused(settings)


class AzureOpenAI(OpenAI, openai.AzureOpenAI):
    """`openai.AzureOpenAI`, observed and with plays: see `OpenAI`."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            plays: Iterable[Play] | None = None,
            hooks: Iterable[Hook] | None = None,
            strict: bool = False,
            **options: Unpack[AzureOpenAIOptions],
        ) -> None: ...


class AsyncAzureOpenAI(AsyncOpenAI, openai.AsyncAzureOpenAI):
    """`openai.AsyncAzureOpenAI`, observed and with plays: see `OpenAI`."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            plays: Iterable[Play] | None = None,
            hooks: Iterable[Hook] | None = None,
            strict: bool = False,
            **options: Unpack[AsyncAzureOpenAIOptions],
        ) -> None: ...


for _client in (OpenAI, AsyncOpenAI, AzureOpenAI, AsyncAzureOpenAI):
    adopt_signature(_client)
