"""The calls of an asynchronous client: see `_calls`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import openai

from ..compat.answers import UNDECODED, decode, open_stream
from ..compat.call_options import post_options
from ..compat.observed_stream import observing
from ..compat.own_methods import OwnMethods
from ..compat.send import async_send, layers_to_pass
from ..plays.routing.route_requests import refuse_route
from .body import watch_body
from .calls import ASYNC_AROUND, THE_LONG_WAY, CommonCalls, is_plain_post
from .context import current_observation, restore
from .refused_fields import TierFull, without_refused
from .shell import Shell
from .traced import answered, around_attempt, head_came, quietly

if TYPE_CHECKING:
    from .attempts._journey import Journey
    from .call import Form
    from .observation import Observation

_POST = OwnMethods(("post",), openai.AsyncOpenAI, openai._base_client.AsyncAPIClient)


class AsyncCalls(CommonCalls):
    """The calls of an asynchronous client."""

    async def post(self, path: str, **arguments: Any) -> Any:
        """Send a POST request; the plain ones past openai's own `post`."""
        if not self._passes_nobody_by() or not _POST.are_own or not is_plain_post(arguments):
            return await super().post(path, **arguments)  # type: ignore[misc]
        options = post_options(path, arguments["body"], arguments.get("options", {}))
        stream, stream_cls = arguments.get("stream", False), arguments.get("stream_cls")
        return await self.request(arguments["cast_to"], options, stream=stream, stream_cls=stream_cls)

    async def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        """Send a call through the plays. Takes and raises what openai's `request` does."""
        shell = self._fastlane
        if shell is None:
            refuse_route(options)
            return await super().request(cast_to, options, stream=stream, stream_cls=stream_cls)  # type: ignore[misc]
        # The client whose plays the call goes through: another one where it goes to an arm of an experiment.
        client: Any = self
        assigned = None
        if shell.arms is not None:
            client, assigned = shell.arms.choose(self, options)
            shell = client._fastlane
        observation = shell.begin(client._base_url, options, stream=stream, experiment=assigned)
        token = current_observation.set(observation)
        journey: Journey | None = None
        way: Any = None
        try:
            try:
                if stream and stream_cls is not None:
                    stream_cls = observing(stream_cls)
                if shell.pipeline.goes_several_ways:
                    from .attempts._journey import journey_of

                    journey = journey_of(client, observation, options)
                if journey is None:
                    options = shell.plan(client, observation, options)
                    result = await client._planned(observation, cast_to, stream, stream_cls, options)
                else:
                    from .attempts._async import async_travel

                    result, way = await async_travel(journey, cast_to, stream, stream_cls)
                    observation = journey.ended(way)
            finally:
                restore(current_observation, token)
            shell.returned(observation, result)
        except BaseException as error:
            if journey is not None:
                observation = journey.ended(None) if way is None else way.observation
            observation.broken_off(error)
            raise
        return result

    async def _planned(
        self, observation: Observation, cast_to: Any, stream: bool, stream_cls: Any, options: Any
    ) -> Any:
        """The result of a planned call."""
        if observation.guard is None:
            return await self._run(observation, cast_to, stream, stream_cls, options)
        from .guarding import async_guarded

        run = partial(self._run, observation, cast_to, stream, stream_cls)
        return await async_guarded(observation, options, run, observation.guard)

    async def _run(self, observation: Observation, cast_to: Any, stream: bool, stream_cls: Any, options: Any) -> Any:
        """The result of a planned call, sent when there is a place for it."""
        urgent = observation.urgent
        if urgent is None:
            return await self._looped(observation, cast_to, stream, stream_cls, options)
        try:
            options = urgent.prepared(self, observation, options)
            while True:
                await urgent.async_enter(self, observation, options)
                try:
                    return await self._looped(observation, cast_to, stream, stream_cls, options)
                except TierFull as full:
                    options = urgent.fallen(self, observation, options, full)
        except BaseException as error:
            # A task that is garbage-collected waits for no lock: the very thread may hold it.
            urgent.step_back(observation, failed=True, quietly=isinstance(error, GeneratorExit))
            if urgent.sharing is not None:
                urgent.sharing.left_by(error)
            raise

    async def _looped(self, observation: Observation, cast_to: Any, stream: bool, stream_cls: Any, options: Any) -> Any:
        """By a first attempt that succeeds, or by openai's own loop."""
        result = await self._first_attempt(observation, cast_to, options, stream=stream, stream_cls=stream_cls)
        # Each time round, the provider has refused a field that a play had added.
        while result is THE_LONG_WAY:
            try:
                with quietly(observation):
                    result = await super().request(  # type: ignore[misc]
                        cast_to, options, stream=stream, stream_cls=stream_cls
                    )
            except openai.APIStatusError as error:
                options = without_refused(self, observation, options, error)
                if options is None:
                    raise
                if observation.urgent is not None and observation.urgent.sharing is not None:
                    # Another request: it may have other company.
                    await observation.urgent.async_enter(self, observation, options)
        return result

    async def _first_attempt(
        self, observation: Observation, cast_to: Any, options: Any, *, stream: bool, stream_cls: Any
    ) -> Any:
        """See `Calls._first_attempt`."""
        request = None
        if ASYNC_AROUND.are_own:
            request = self._fastlane.requests.first(self, options, observation)  # type: ignore[union-attr]
        if request is None:
            return THE_LONG_WAY
        try:
            response = await self._send_request(request, stream=stream)
        except Exception as error:  # noqa: BLE001 - raised again where openai's loop sends its first attempt
            observation.attempted(request, None, error)
            return THE_LONG_WAY
        if not 200 <= response.status_code < 300:
            observation.attempted(request, response, None)
            return THE_LONG_WAY
        return await self._process_response(
            cast_to=cast_to, options=options, response=response, stream=stream, stream_cls=stream_cls, retries_taken=0
        )

    async def _send_request(self, request: Any, *, stream: bool, **kwargs: Any) -> Any:
        observation = current_observation.get()
        if observation is None:
            return await super()._send_request(request, stream=stream, **kwargs)  # type: ignore[misc]
        if observation.first_attempt is not None:
            return observation.take_first_attempt()
        guard = None if stream else observation.guard or observation.collector
        unread = stream or (guard is not None and guard.collects)
        send = partial(self._sent, observation, request, unread, **kwargs)
        leg, urgent = observation.leg, observation.urgent
        if leg is None:
            observation.check()
            if urgent is not None and urgent.sharing is not None and urgent.sharing.is_ready:
                carry = partial(self._sent, observation, unread=True, **kwargs)
                response = await urgent.sharing.async_answer(urgent, request, carry, unread=unread)
            else:
                response = await send()
        else:
            from .attempts._async import async_begun_by

            response = await async_begun_by(leg, observation, send, unread=unread)
        if urgent is not None and urgent.may_be_full(response.status_code):
            await response.aread()
            urgent.look(observation, response)
        if guard is not None:
            from .collecting import async_collected

            return await async_collected(guard, observation, response)
        if stream and not response.is_closed and response.status_code < 400:
            watch_body(response, observation, asynchronous=True)
        return response

    async def _sent(self, observation: Observation, request: Any, unread: bool, **kwargs: Any) -> Any:
        """Send one attempt's request, in the form that pays; its response, unread if it is to be streamed."""
        if observation.sending is None:
            return await self._attempt(observation, request, stream=unread, **kwargs)
        from ..plays.request_encoding._driving import async_run

        probing = {**kwargs, "stream": True, "follow_redirects": False}
        return await async_run(
            observation.sending,
            request,
            self._client,  # type: ignore[attr-defined]
            lambda step: self._attempt(
                observation, step.request, stream=unread, form=step.form, plain=step.kind == "plain", **kwargs
            ),
            partial(super()._send_request, **probing),  # type: ignore[misc]
        )

    async def _sleep_for_retry(self, **kwargs: Any) -> Any:
        observation = current_observation.get()
        if observation is None:
            return await super()._sleep_for_retry(**kwargs)  # type: ignore[misc]
        self._before_retry(observation, **kwargs)
        urgent = observation.urgent
        from ..compat.retry_pause import async_pause

        sleep = partial(super()._sleep_for_retry, **kwargs)  # type: ignore[misc]
        if urgent is None:
            return await async_pause(self._client, sleep)  # type: ignore[attr-defined]
        urgent.step_back(observation, failed=True)
        if urgent.sharing is not None and urgent.sharing.goes_along():
            return None
        await async_pause(self._client, sleep)  # type: ignore[attr-defined]
        with self._unless_refused(kwargs["response"]):
            await urgent.async_enter(self, observation, kwargs["options"])
        return None

    async def _attempt(
        self,
        observation: Observation,
        request: Any,
        *,
        stream: bool,
        form: Form = "json",
        plain: bool = False,
        **kwargs: Any,
    ) -> Any:
        """See `Calls._attempt`."""
        Shell.attach(observation, request, asynchronous=True, form=form, plain=plain)
        try:
            layers = None
            if ASYNC_AROUND.are_own and self._passes_nobody_by():
                layers = layers_to_pass(self, self._client, request, kwargs)  # type: ignore[attr-defined]
            with around_attempt(observation, self._client, request):  # type: ignore[attr-defined]
                if layers is None:
                    response = await super()._send_request(request, stream=stream, **kwargs)  # type: ignore[misc]
                else:
                    response = await async_send(layers, self._client, request, stream=stream)  # type: ignore[attr-defined]
        except BaseException as error:
            observation.attempt_failed(error)
            raise
        observation.attempt_answered(response)
        head_came(observation)
        return response

    async def _process_response(
        self, *, cast_to: Any, options: Any, response: Any, stream: bool, stream_cls: Any, **more: Any
    ) -> Any:
        observation = current_observation.get()
        if observation is not None and ASYNC_AROUND.are_own and self._passes_nobody_by():
            if stream:
                result = open_stream(cast_to, self, stream_cls, options, response)
            else:
                result = decode(self, cast_to, options, response)
            if result is not UNDECODED:
                return result
        result = await super()._process_response(  # type: ignore[misc]
            cast_to=cast_to, options=options, response=response, stream=stream, stream_cls=stream_cls, **more
        )
        if observation is not None and not stream:
            answered(observation, result)
        return result
