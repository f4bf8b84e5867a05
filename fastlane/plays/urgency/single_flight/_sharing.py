"""One call's part in single flight: whether it may share, what it needs a place for, and whose answer it gets."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from fastlane._clock import now_ns
from fastlane.compat.clients import has_identity_provider, http_client_of, pool_settings_of
from fastlane.compat.requests import build_first, may_be_a_form
from fastlane.compat.send import layers_to_pass
from fastlane.errors import CallRefusedError
from fastlane.records.urgency import LEVELS, Level
from fastlane.records.usage import Usage

from ._flight import Key, Place, Seat, Send, Wait, depart, leave
from ._head_wait import ClientClosed
from ._joining import follow, hand_over, join, until_sent
from ._key import key_of, why_not
from ._tasks import async_shared
from ._threads import shared

if TYPE_CHECKING:
    from fastlane.engine.observation import Observation


class Refused(BaseException):
    """No place is to be had for a call that was to send the request in the place of another.

    It passes through openai's own loop, which would try again what failed.
    """

    def __init__(self, error: CallRefusedError) -> None:
        super().__init__()
        self.error = error


class Sharing:
    """One call's part in single flight, over all of its attempts."""

    __slots__ = ("_is_fresh", "_observation", "_options", "_owner", "seat", "streams", "why_alone")

    def __init__(self) -> None:
        self.seat: Seat | None = None
        """Its place in the flight of its last attempt; None where it is sent by itself."""
        self.why_alone: str | None = None
        """Why it is sent by itself, in one sentence."""
        self.streams = False
        """Whether the body asks for a stream."""
        self._is_fresh = False
        self._owner: Any = None
        self._observation: Observation | None = None
        self._options: Any = None

    # Before an attempt

    def needs_place(self, client: Any, observation: Observation, options: Any, level: Level) -> bool:
        """Whether the attempt needs a place among the calls that are sent, because it may be the one that is.

        It joins those who ask for the same, unless it has before its wait for a retry.
        """
        seat = self.seat
        if seat is None or not self._is_fresh or seat.has_left:
            self._leave()
            key, self.why_alone = asked_for(client, observation, options)
            seat = self.seat = None if key is None else join(key, observation.call_id, LEVELS.index(level))
        self._is_fresh = seat is not None
        self._owner, self._observation, self._options = client, observation, options
        body = options.json_data
        self.streams = isinstance(body, dict) and body.get("stream") is True
        return seat is None or seat.is_candidate

    def goes_along(self) -> bool:
        """An attempt has failed, and the call tries again: whether another one does that for all.

        The first one waits as it would have waited without the others, and sends; the others wait for its answer.
        """
        if self.seat is None:
            return False
        self.seat = follow(self.seat)
        self._is_fresh = True
        return not self.seat.is_candidate

    def until_sent(self, wait: Wait) -> AbstractContextManager[None]:
        """A block in which the call waits for a place: `wait` is called off once another one has sent the request."""
        seat = self.seat
        return nullcontext() if seat is None or not seat.is_candidate else until_sent(seat, wait)

    # The attempt

    @property
    def is_ready(self) -> bool:
        """Whether the attempt that is to be made now is one of a flight."""
        return self._is_fresh

    def answer(self, urgent: Any, request: Any, send: Send, *, unread: bool) -> Any:
        """The answer to the attempt, unread if it is to be; the flight's request is sent by one of its calls.

        Raises the HTTP library's errors, and Refused.
        """
        seat, observation, place = self._taken(urgent, _Entrance)
        try:
            response = shared(seat, observation, request, send, place, streams=self.streams, unread=unread)
        except ClientClosed:
            return send(request)
        self._answered(seat, observation, response)
        return response

    async def async_answer(self, urgent: Any, request: Any, send: Send, *, unread: bool) -> Any:
        """See `answer`."""
        seat, observation, place = self._taken(urgent, _AsyncEntrance)
        try:
            response = await async_shared(seat, observation, request, send, place, streams=self.streams, unread=unread)
        except ClientClosed:
            return await send(request)
        self._answered(seat, observation, response)
        return response

    def _taken(self, urgent: Any, form: type[_Entrance]) -> tuple[Seat, Observation, _Entrance]:
        """The seat of the attempt that is made now: the next one gets another."""
        seat, observation = self.seat, self._observation
        assert seat is not None
        assert observation is not None
        self._is_fresh = False
        return seat, observation, form(urgent, self, self._owner, observation, self._options)

    def stands(self, *, is_ready: bool) -> None:
        """The call is to send the request after all."""
        self._is_fresh = is_ready

    # After it

    @staticmethod
    def _answered(seat: Seat, observation: Observation, response: Any) -> None:
        """The answer has begun. What another call paid for tells nothing of the provider's cache."""
        prompt = observation.prompt
        if prompt is None or seat.leads or response.status_code >= 300:
            return
        observation.prompt = None
        try:
            prompt.settle(Usage(), answered=False, now_ns=now_ns())
        except Exception as error:  # noqa: BLE001 - a play must not break a call
            observation.pipeline.went_wrong("PromptCache", "settle", error)

    def hands_over(self, place: Place) -> bool:
        """Whether the request goes on without the call that has sent it, and keeps its place."""
        return self.seat is not None and hand_over(self.seat, place)

    def _leave(self) -> None:
        """The call makes no use of its seat: somebody else is to send the request, if it has not been sent."""
        if self.seat is not None and self._is_fresh:
            leave(self.seat)
        self._forget()

    def left_by(self, error: BaseException) -> None:
        """The call ends with an error. Raises the one that the application gets in its place, if any."""
        if self.seat is not None:
            # Whatever it was doing: Ctrl-C may have come just before the attempt, which leaves it at its own end.
            depart(self.seat)
        self._forget()
        if isinstance(error, Refused):
            raise error.error from None

    def _forget(self) -> None:
        self._is_fresh = False
        self._owner = self._observation = self._options = None

    @property
    def shared_with(self) -> str | None:
        """The call whose answer this one got; None where it was sent itself."""
        return None if self.seat is None else self.seat.shared_with

    @property
    def sharers(self) -> int:
        """How many others got its answer so far."""
        return 0 if self.seat is None else self.seat.sharers


class _Entrance:
    """The entrance of one call: see `_head_wait.Entrance`."""

    def __init__(self, urgent: Any, sharing: Sharing, client: Any, observation: Any, options: Any) -> None:
        self._urgent = urgent
        self._sharing = sharing
        self._call = client, observation, options
        self.http = http_client_of(client)

    def enter(self) -> Any:
        self._sharing.stands(is_ready=True)
        try:
            self._urgent.enter(*self._call)
        except CallRefusedError as error:
            raise Refused(error) from None
        finally:
            self._sharing.stands(is_ready=False)
        if self.http.is_closed:
            raise ClientClosed

    def give_back(self) -> None:
        self._urgent.step_back(self._call[1])


class _AsyncEntrance(_Entrance):
    async def enter(self) -> None:
        self._sharing.stands(is_ready=True)
        try:
            await self._urgent.async_enter(*self._call)
        except CallRefusedError as error:
            raise Refused(error) from None
        finally:
            self._sharing.stands(is_ready=False)
        if self.http.is_closed:
            raise ClientClosed


def asked_for(client: Any, observation: Observation, options: Any) -> tuple[Key | None, str | None]:
    """What a call asks for, and of whom; or None, and why it is sent by itself."""
    if observation.leg is not None:
        return None, "it may go several ways"
    if observation.transport != "fastlane":
        return None, "fastlane's transport does not carry the call: client.explain() says why"
    body = options.json_data
    if not isinstance(body, dict) or options.method.lower() != "post":
        return None, "it is no call with a JSON body"
    extra = options.extra_json
    alone = why_not(observation.endpoint, {**body, **extra} if isinstance(extra, dict) else body)
    if alone is not None:
        return None, alone
    written = observation.body(options)
    requests = client._fastlane.requests
    if written is None or not requests.are_wanted(client) or may_be_a_form(client, options):
        return None, "code of the application's, or of another tool's, has a say in the request"
    if has_identity_provider(client):
        return None, "whose call it is, is asked anew for each"
    http = http_client_of(client)
    request = requests.first(client, options, observation) or build_first(client, options)
    if options.follow_redirects is not None or layers_to_pass(client, http, request, {}) is None:
        return None, "its HTTP client does more than to send it"
    where = None
    if client._asynchronous:
        try:
            where = asyncio.get_running_loop()
        except RuntimeError:
            return None, "the event loop is not asyncio's"
    key = key_of(request.method, str(request.url), request.headers.raw, written)
    return (where, pool_settings_of(http), key), None
