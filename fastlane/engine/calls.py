"""One call of a client: observed, planned, its first attempt sent the short way, and everything else left to openai."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import openai

from ..compat.answers import UNDECODED, decode, open_stream
from ..compat.call_options import post_options
from ..compat.observed_stream import observing
from ..compat.own_methods import OwnMethods
from ..compat.requests import may_be_a_form
from ..compat.send import layers_to_pass, send
from ..errors import CallRefusedError
from ..plays.routing.route_requests import refuse_route
from .body import watch_body
from .context import current_observation
from .refused_fields import TierFull, without_refused
from .shell import Shell
from .traced import answered, around_attempt, head_came, quietly

if TYPE_CHECKING:
    from .attempts._journey import Journey
    from .call import Form
    from .observation import Observation

# Instrumentations put their own in the place of these, before or after they are first looked at.
_AROUND = ("request", "_send_request", "_send_with_auth_retry", "_process_response", "_build_request")
_SYNC_CLASSES = (openai.OpenAI, openai._base_client.SyncAPIClient)
_ASYNC_CLASSES = (openai.AsyncOpenAI, openai._base_client.AsyncAPIClient)
_SYNC_AROUND, ASYNC_AROUND = OwnMethods(_AROUND, *_SYNC_CLASSES), OwnMethods(_AROUND, *_ASYNC_CLASSES)
_POST = OwnMethods(("post",), *_SYNC_CLASSES)

_POST_ARGUMENTS = frozenset({"body", "cast_to", "options", "stream", "stream_cls"})
_POST_NEEDS = frozenset({"body", "cast_to"})

THE_LONG_WAY = object()


def is_plain_post(arguments: dict[str, Any]) -> bool:
    """Whether it posts JSON in the way of openai's resources."""
    names = arguments.keys()
    return _POST_NEEDS <= names <= _POST_ARGUMENTS and type(arguments["body"]) is dict


def error_of_attempt(client: Any, response: Any, failed: BaseException | None) -> openai.OpenAIError:
    """What openai's loop raises for an attempt that is not made again; `response`: None where none came."""
    if response is not None:
        return client._make_status_error_from_response(response)  # type: ignore[no-any-return]
    request: Any = getattr(failed, "_request", None)
    is_late = any(kind.__name__ == "TimeoutException" for kind in type(failed).__mro__)
    return openai.APITimeoutError(request) if is_late else openai.APIConnectionError(request=request)


class CommonCalls:
    """What the synchronous and the asynchronous form have in common."""

    _asynchronous: ClassVar[bool]
    _fastlane: Shell | None

    def _passes_nobody_by(self) -> bool:
        """Whether openai's own way, which is left out here, would lead to no code but openai's."""
        return self._fastlane is not None and self._fastlane.requests.pass_nobody_by

    def _before_retry(
        self, observation: Observation, *, retries_taken: int, max_retries: int, options: Any, response: Any
    ) -> None:
        """The loop of openai's is about to wait: the call's other ways and its deadline say whether it may."""
        leg = observation.leg
        if leg is None:
            return
        headers = None if response is None else response.headers
        wait_s = self._calculate_retry_timeout(max_retries - retries_taken, options, headers)  # type: ignore[attr-defined]
        leg.before_retry(response, wait_s)

    @contextmanager
    def _unless_refused(self, response: Any) -> Iterator[None]:
        """A retry for which there is no place in time is not made: the attempt's own error is the application's."""
        failed = sys.exception()
        try:
            yield
        except CallRefusedError as refused:
            raise error_of_attempt(self, response, failed) from refused
        finally:
            del failed  # whose traceback leads here

    def _build_request(self, options: Any, *, retries_taken: int = 0) -> Any:
        stock = super()._build_request  # type: ignore[misc]
        observation = current_observation.get()
        if observation is None or self._fastlane is None:
            return stock(options, retries_taken=retries_taken)
        if observation.first_attempt is not None:
            return observation.first_attempt[0]
        requests = self._fastlane.requests
        body = None
        around = ASYNC_AROUND if self._asynchronous else _SYNC_AROUND
        if around.are_own and requests.are_wanted(self) and not may_be_a_form(self, options):
            body = observation.body(options)
        if body is None:
            return stock(options, retries_taken=retries_taken)

        def build(client: Any) -> Any:
            # The stock client's own way need not write the body once more.
            encoded = options.model_copy(update={"json_data": body, "extra_json": None})
            return super(CommonCalls, client)._build_request(encoded, retries_taken=retries_taken)  # type: ignore[misc] # noqa: UP008

        return requests.build(self, options, retries_taken, body, build)


class Calls(CommonCalls):
    """The calls of a synchronous client."""

    def post(self, path: str, **arguments: Any) -> Any:
        """Send a POST request; the plain ones past openai's own `post`."""
        if not self._passes_nobody_by() or not _POST.are_own or not is_plain_post(arguments):
            return super().post(path, **arguments)  # type: ignore[misc]
        options = post_options(path, arguments["body"], arguments.get("options", {}))
        stream, stream_cls = arguments.get("stream", False), arguments.get("stream_cls")
        return self.request(arguments["cast_to"], options, stream=stream, stream_cls=stream_cls)

    def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        """Send a call through the plays. Takes and raises what openai's `request` does."""
        shell = self._fastlane
        if shell is None:
            refuse_route(options)
            return super().request(cast_to, options, stream=stream, stream_cls=stream_cls)  # type: ignore[misc]
        # The client whose plays the call goes through: another one where it goes to an arm of an experiment.
        client: Any = self
        assigned = None
        if shell.arms is not None:
            client, assigned = shell.arms.choose(self, options)
            shell = client._fastlane
        observation = shell.begin(client._base_url, options, stream=stream, experiment=assigned)
        before = current_observation.get()
        journey: Journey | None = None
        way: Any = None
        try:
            try:
                current_observation.set(observation)
                if stream and stream_cls is not None:
                    stream_cls = observing(stream_cls)
                if shell.pipeline.goes_several_ways:
                    from .attempts._journey import journey_of

                    journey = journey_of(client, observation, options)
                if journey is None:
                    options = shell.plan(client, observation, options)
                    result = client._planned(observation, cast_to, stream, stream_cls, options)
                else:
                    from .attempts._sync import travel

                    result, way = travel(journey, cast_to, stream, stream_cls)
                    observation = journey.ended(way)
            finally:
                # In one step and without a token: Ctrl-C may have come before there was one, and comes here as well.
                current_observation.set(before)
            shell.returned(observation, result)
        except BaseException as error:
            if journey is not None:
                observation = journey.ended(None) if way is None else way.observation
            observation.broken_off(error)
            raise
        return result

    def _planned(self, observation: Observation, cast_to: Any, stream: bool, stream_cls: Any, options: Any) -> Any:
        """The result of a planned call."""
        if observation.guard is None:
            return self._run(observation, cast_to, stream, stream_cls, options)
        from .guarding import guarded

        run = partial(self._run, observation, cast_to, stream, stream_cls)
        return guarded(observation, options, run, observation.guard)

    def _run(self, observation: Observation, cast_to: Any, stream: bool, stream_cls: Any, options: Any) -> Any:
        """The result of a planned call, sent when there is a place for it."""
        urgent = observation.urgent
        if urgent is None:
            return self._looped(observation, cast_to, stream, stream_cls, options)
        try:
            options = urgent.prepared(self, observation, options)
            while True:
                urgent.enter(self, observation, options)
                try:
                    return self._looped(observation, cast_to, stream, stream_cls, options)
                except TierFull as full:
                    options = urgent.fallen(self, observation, options, full)
        except BaseException as error:
            urgent.step_back(observation, failed=True)
            if urgent.sharing is not None:
                urgent.sharing.left_by(error)
            raise

    def _looped(self, observation: Observation, cast_to: Any, stream: bool, stream_cls: Any, options: Any) -> Any:
        """By a first attempt that succeeds, or by openai's own loop."""
        result = self._first_attempt(observation, cast_to, options, stream=stream, stream_cls=stream_cls)
        # Each time round, the provider has refused a field that a play had added.
        while result is THE_LONG_WAY:
            try:
                with quietly(observation):
                    result = super().request(  # type: ignore[misc]
                        cast_to, options, stream=stream, stream_cls=stream_cls
                    )
            except openai.APIStatusError as error:
                options = without_refused(self, observation, options, error)
                if options is None:
                    raise
                if observation.urgent is not None and observation.urgent.sharing is not None:
                    # Another request: it may have other company.
                    observation.urgent.enter(self, observation, options)
        return result

    def _first_attempt(
        self, observation: Observation, cast_to: Any, options: Any, *, stream: bool, stream_cls: Any
    ) -> Any:
        """The result of a call whose first attempt succeeds.

        What openai's own loop does for such a call, without the steps that have nothing to do. Any other attempt is
        shown to that loop as its own first, for it to decide what comes next.
        """
        request = None
        if _SYNC_AROUND.are_own:
            request = self._fastlane.requests.first(self, options, observation)  # type: ignore[union-attr]
        if request is None:
            return THE_LONG_WAY
        try:
            response = self._send_request(request, stream=stream)
        except Exception as error:  # noqa: BLE001 - raised again where openai's loop sends its first attempt
            observation.attempted(request, None, error)
            return THE_LONG_WAY
        if not 200 <= response.status_code < 300:
            observation.attempted(request, response, None)
            return THE_LONG_WAY
        return self._process_response(
            cast_to=cast_to, options=options, response=response, stream=stream, stream_cls=stream_cls, retries_taken=0
        )

    def _send_request(self, request: Any, *, stream: bool, **kwargs: Any) -> Any:
        observation = current_observation.get()
        if observation is None:
            return super()._send_request(request, stream=stream, **kwargs)  # type: ignore[misc]
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
                response = urgent.sharing.answer(urgent, request, carry, unread=unread)
            else:
                response = send()
        else:
            from .attempts._sync import begun_by

            response = begun_by(leg, observation, send, unread=unread)
        if urgent is not None and urgent.may_be_full(response.status_code):
            response.read()
            urgent.look(observation, response)
        if guard is not None:
            from .collecting import collected

            return collected(guard, observation, response)
        if stream and not response.is_closed and response.status_code < 400:
            watch_body(response, observation, asynchronous=False)
        return response

    def _sent(self, observation: Observation, request: Any, unread: bool, **kwargs: Any) -> Any:
        """Send one attempt's request, in the form that pays; its response, unread if it is to be streamed."""
        if observation.sending is None:
            return self._attempt(observation, request, stream=unread, **kwargs)
        from ..plays.request_encoding._driving import run

        probing = {**kwargs, "stream": True, "follow_redirects": False}
        return run(
            observation.sending,
            request,
            self._client,  # type: ignore[attr-defined]
            lambda step: self._attempt(
                observation, step.request, stream=unread, form=step.form, plain=step.kind == "plain", **kwargs
            ),
            partial(super()._send_request, **probing),  # type: ignore[misc]
        )

    def _sleep_for_retry(self, **kwargs: Any) -> Any:
        observation = current_observation.get()
        if observation is None:
            return super()._sleep_for_retry(**kwargs)  # type: ignore[misc]
        self._before_retry(observation, **kwargs)
        urgent = observation.urgent
        from ..compat.retry_pause import stock_pause

        sleep = stock_pause(super()._sleep_for_retry, self._client)  # type: ignore[misc, attr-defined]
        if urgent is None:
            return sleep(**kwargs)
        urgent.step_back(observation, failed=True)
        if urgent.sharing is not None and urgent.sharing.goes_along():
            return None
        sleep(**kwargs)
        with self._unless_refused(kwargs["response"]):
            urgent.enter(self, observation, kwargs["options"])
        return None

    def _attempt(
        self,
        observation: Observation,
        request: Any,
        *,
        stream: bool,
        form: Form = "json",
        plain: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Send one request of a call, its body written in `form`; its response, unread if it is to be streamed."""
        Shell.attach(observation, request, asynchronous=False, form=form, plain=plain)
        try:
            layers = None
            if _SYNC_AROUND.are_own and self._passes_nobody_by():
                layers = layers_to_pass(self, self._client, request, kwargs)  # type: ignore[attr-defined]
            with around_attempt(observation, self._client, request):  # type: ignore[attr-defined]
                if layers is None:
                    response = super()._send_request(request, stream=stream, **kwargs)  # type: ignore[misc]
                else:
                    response = send(layers, self._client, request, stream=stream)  # type: ignore[attr-defined]
        except BaseException as error:
            observation.attempt_failed(error)
            raise
        observation.attempt_answered(response)
        head_came(observation)
        return response

    def _process_response(
        self, *, cast_to: Any, options: Any, response: Any, stream: bool, stream_cls: Any, **more: Any
    ) -> Any:
        observation = current_observation.get()
        if observation is not None and _SYNC_AROUND.are_own and self._passes_nobody_by():
            if stream:
                result = open_stream(cast_to, self, stream_cls, options, response)
            else:
                result = decode(self, cast_to, options, response)
            if result is not UNDECODED:
                return result
        result = super()._process_response(  # type: ignore[misc]
            cast_to=cast_to, options=options, response=response, stream=stream, stream_cls=stream_cls, **more
        )
        if observation is not None and not stream:
            answered(observation, result)
        return result
