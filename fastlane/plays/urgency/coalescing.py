"""Request coalescing (`single_flight=True`): identical deterministic calls under way at once share one request.

One of the calls sends the request; the others wait for its response, and each gets a response object of its own with
the same bytes. Whole responses only, also those with an error's status. Where no response comes, because the call that
sends fails or is cancelled, the next one sends the request.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from fastlane._clock import now_ns
from fastlane._fork import in_child, new_lock
from fastlane.compat.clients import has_identity_provider, http_client_of, pool_settings_of
from fastlane.compat.send import layers_to_pass
from fastlane.engine.effects import Acquire, Flow
from fastlane.protocol.endpoints import GENERATING, RESPONSES
from fastlane.records.urgency import Level
from fastlane.records.usage import Usage

if TYPE_CHECKING:
    from fastlane.compat.retry import Attempt
    from fastlane.engine.observation import Observation
    from fastlane.engine.pipeline import Pipeline

Key = tuple[Any, ...]
"""The event loop (None for threads), the level, the connections, and a digest of the request."""

# Of this process: what is kept says nothing of a key or a prompt.
_SALT = os.urandom(16)

# Headers that tell requests or clients apart, and change nothing about the response.
_IRRELEVANT = frozenset({b"content-length", b"traceparent", b"tracestate", b"baggage", b"x-request-id",
                         b"x-client-request-id"})  # fmt: skip
_OF_THE_CLIENT = b"x-stainless-"

# A model writes the members of an object in the order in which their schema names them.
_IN_ORDER = frozenset({"functions", "response_format", "text", "tools"})

# Tools that the application runs itself; with any other the provider does something in the world.
_RUN_BY_THE_APPLICATION = frozenset({"function", "custom"})

# Headers of the bytes on the wire: the shared bytes are decoded.
_OF_THE_BYTES = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})

_lock = new_lock()
_under_way: dict[Key, Shared] = {}
in_child(_under_way.clear)  # the requests are the parent's


class Shared:
    """One request, and the calls that share it."""

    __slots__ = ("leader", "response", "waiting")

    def __init__(self) -> None:
        self.leader: Turn | None = None
        """The call that sends the request, or has sent it."""
        self.response: Any = None
        self.waiting: deque[Turn] = deque()

    @property
    def calls(self) -> int:
        """How many calls share it now."""
        return (self.leader is not None) + len(self.waiting)


def under_way() -> tuple[Shared, ...]:
    """Return the requests that can be shared now."""
    return tuple(_under_way.values())


class Turn:
    """One call's claim to a response: a ticket of `Acquire`, granted to the call that sends, and with the response."""

    __slots__ = ("_key", "_wake", "call_id", "shared", "started_ns")

    def __init__(self, key: Key, call_id: str) -> None:
        self.call_id = call_id
        self.shared: Shared | None = None
        self.started_ns = now_ns()
        self._key = key
        self._wake: Callable[[], bool] = bool

    @property
    def is_granted(self) -> bool:
        """Whether the call sends the request, or its response has come."""
        shared = self.shared
        return shared is not None and (shared.leader is self or shared.response is not None)

    def start(self, wake: Callable[[], bool]) -> None:
        """Join the calls that share a request; the first one sends it."""
        self._wake = wake
        with _lock:
            shared = self.shared = _under_way.setdefault(self._key, Shared())
            if shared.leader is None:
                shared.leader = self
            else:
                shared.waiting.append(self)

    def deliver(self, response: Any) -> int:
        """Give the others the response. Returns how many they are."""
        assert self.shared is not None
        with _lock:
            self.shared.response = response
            sharers = len(self.shared.waiting)
        self.release()
        return sharers

    def release(self) -> None:
        """Leave. Without a response, the next call sends the request. Calling it again does nothing."""
        shared = self.shared
        if shared is None:
            return
        with _lock:
            waiting = shared.waiting
            if shared.leader is not self and self in waiting:
                waiting.remove(self)
            # (The next one may have become the leader already: an interrupt came before it was woken.)
            while waiting and (shared.response is not None or shared.leader in (self, waiting[0])):
                following = waiting[0]
                if shared.response is None:
                    shared.leader = following
                is_there = following._wake()
                waiting.popleft()
                if not is_there and shared.leader is following:
                    shared.leader = self
            if (shared.response is not None or shared.leader is self) and _under_way.get(self._key) is shared:
                del _under_way[self._key]


class Coalescing:
    """One call's part in it, over all of its attempts."""

    __slots__ = ("_turn", "shared_with", "sharers", "why_not")

    def __init__(self) -> None:
        self.shared_with: str | None = None
        """The `call_id` of the call whose response this one got; None where it was sent itself."""
        self.sharers = 0
        """How many others got the response of this call."""
        self.why_not: str | None = None
        """Why the last attempt was not shared, in one sentence."""
        self._turn: Turn | None = None

    def around_attempt(
        self, client: Any, observation: Observation, level: Level, send: Callable[[Attempt], Flow], *, is_streamed: bool
    ) -> Callable[[Attempt], Flow]:
        """Send an attempt, or wait for the response of an identical one."""

        def send_or_share(attempt: Attempt) -> Flow:
            self.shared_with, self.sharers = None, 0
            self.why_not = why_not_shared(client, observation, attempt, is_streamed=is_streamed)
            if self.why_not is not None:
                return (yield from send(attempt))
            request, http = attempt.request, http_client_of(client)
            key = _key_of(http, request, level, asynchronous=client._asynchronous)
            turn = self._turn = Turn(key, observation.call_id)
            timeout_s = (request.extensions.get("timeout") or {}).get("read")
            try:
                try:
                    yield Acquire(http, turn, timeout_s)
                except TimeoutError:
                    raise _timed_out(observation, request, turn.started_ns) from None
                shared = turn.shared
                assert shared is not None
                if shared.response is not None:
                    assert shared.leader is not None
                    self.shared_with = shared.leader.call_id
                    return _response_for(observation, request, shared.response, turn.started_ns)
                response = yield from send(attempt)
                self.sharers = turn.deliver(response)
            except BaseException:
                self.end(observation.pipeline)
                raise
            return response

        return send_or_share

    def end(self, pipeline: Pipeline) -> None:
        """The attempt is over. Calling it again does nothing."""
        turn = self._turn
        if turn is None:
            return
        if isinstance(sys.exception(), GeneratorExit):
            pipeline.report_later(turn.release)  # in a garbage collection this thread may hold the lock
        else:
            turn.release()
        self._turn = None  # not before: an interrupt may come amid the release


# What each call gets


def _response_for(observation: Observation, request: Any, shared: Any, started_ns: int) -> Any:
    """Make one more response object of the same bytes."""
    attempt = _begin_shared(observation, request, started_ns)
    version = shared.extensions.get("http_version")
    attempt.phases.http_version = version.decode("ascii", "replace") if isinstance(version, bytes) else None
    headers = shared.headers.raw
    if "content-encoding" in shared.headers:
        headers = [pair for pair in headers if pair[0].lower() not in _OF_THE_BYTES]
    kept = {name: shared.extensions[name] for name in ("http_version", "reason_phrase") if name in shared.extensions}
    response = type(shared)(
        shared.status_code,
        headers=headers,
        content=shared.content,
        request=request,
        extensions=kept,
        history=shared.history,
        default_encoding=shared.default_encoding,
    )
    response.elapsed = shared.elapsed
    observation.attempt_answered(response)
    attempt.phases.first_byte_ns = attempt.phases.answer_ended_ns = attempt.ended_ns = now_ns()
    prompt, observation.prompt = observation.prompt, None
    if prompt is not None and response.is_success:
        # What another call paid for says nothing of the provider's cache.
        try:
            prompt.settle(Usage(), answered=False, now_ns=now_ns())
        except Exception as error:  # noqa: BLE001 - a play must not break a call
            observation.pipeline.went_wrong("PromptCache", "settle", error)
    return response


def _timed_out(observation: Observation, request: Any, started_ns: int) -> Exception:
    """Make the HTTP library's error of a response that did not come within this call's timeout."""
    _begin_shared(observation, request, started_ns)
    library: Any = sys.modules[type(request).__module__.partition(".")[0]]  # httpx2, or legacy httpx
    error: Exception = library.ReadTimeout("The server did not answer in time.", request=request)
    observation.attempt_failed(error)
    return error


def _begin_shared(observation: Observation, request: Any, started_ns: int) -> Any:
    observation.next_kind = "shared"
    attempt = observation.begin_attempt(None)
    attempt.url = request.url
    attempt.started_ns = attempt.phases.started_ns = started_ns
    return attempt


# Which calls share


def why_not_shared(client: Any, observation: Observation, attempt: Attempt, *, is_streamed: bool) -> str | None:
    """Return why an attempt is not shared, in one sentence without a word of the prompt; None where it is."""
    if observation.upstream is not None:
        return "it may be sent to several upstreams, or twice"
    if is_streamed:
        return "its answer is streamed"
    if observation.transport != "fastlane":
        return "fastlane's transport does not carry the call: client.explain() says why"
    request = attempt.request
    try:
        body = orjson.loads(request.content)
    except Exception:  # noqa: BLE001 - a body that is streamed out, or is no JSON
        body = None
    if not isinstance(body, dict) or request.method != "POST":
        return "it is no call with a JSON body"
    why_not = why_not_alike(observation.endpoint, body)
    if why_not is not None:
        return why_not
    if has_identity_provider(client):
        return "whose call it is, is asked anew for each"
    if not attempt.is_stock:
        return "code of the application's, or of another tool's, has a say in the request"
    if layers_to_pass(client, http_client_of(client), request, attempt.arguments) is None:
        return "its HTTP client does more than to send it"
    if client._asynchronous:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return "the event loop is not asyncio's"
    return None


def why_not_alike(endpoint: str, body: Mapping[str, Any]) -> str | None:
    """Return why two calls with this body may get different answers; None where they may share one.

    Deterministic is what says so: a `temperature` of 0 or a `seed` (OpenAI's answers are "mostly" the same then:
    https://cookbook.openai.com/examples/reproducible_outputs_with_the_seed_parameter, read 2026-11-22).
    """
    if endpoint not in GENERATING:
        return "answers of this endpoint are not shared"
    temperature = body.get("temperature")
    is_cold = type(temperature) in (int, float) and temperature == 0
    if not is_cold and type(body.get("seed")) is not int:
        return "it is not deterministic: it has neither a temperature of 0 nor a seed"
    if body.get("background"):
        return "the provider works on it in the background and keeps its answer"
    if body.get("conversation") is not None:
        return "its answer becomes a part of a conversation that the provider keeps"
    # OpenAI keeps responses unless they say otherwise, and chat completions only where they say so
    # (https://developers.openai.com/api/reference, `store`, read 2026-11-22).
    if body.get("store", endpoint == RESPONSES) not in (False, None) or (
        endpoint == RESPONSES and body.get("store") is not False
    ):
        return "the provider keeps its answer: store=False says that it need not"
    if body.get("web_search_options") is not None or not _are_run_here(body.get("tools")):
        return "the provider runs tools for it"
    return None


def _are_run_here(tools: Any) -> bool:
    """Whether every tool is one that the application runs itself."""
    if not tools:
        return True
    if not isinstance(tools, list):
        return False
    return all(isinstance(tool, dict) and tool.get("type") in _RUN_BY_THE_APPLICATION for tool in tools)


def _key_of(http: Any, request: Any, level: Level, *, asynchronous: bool) -> Key:
    loop = asyncio.get_running_loop() if asynchronous else None
    digest = digest_of(request.method, str(request.url), request.headers.raw, request.content)
    return loop, level, pool_settings_of(http), digest


def digest_of(method: str, url: str, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bytes:
    """Return a keyed digest of what two identical requests have in common, account included. `body` is JSON."""
    lines = sorted(
        name + b":" + value
        for name, value in ((name.lower(), value) for name, value in headers)
        if name not in _IRRELEVANT and not name.startswith(_OF_THE_CLIENT)
    )
    # None of these can have a line end in it, nor a colon in a name (RFC 9110, 5): no two lists read the same.
    head = b"\n".join((method.encode(), url.encode(), *lines))
    return hashlib.blake2b(head + b"\n\n" + _canonical(body), digest_size=32, key=_SALT).digest()


def _canonical(body: bytes) -> bytes:
    """A JSON body with the members of its objects in one order, apart from those inside of schemas and tools."""
    members = orjson.loads(body)
    parts = []
    for name in sorted(members):
        value = members[name]
        if type(value) is float and value.is_integer() and abs(value) < 2**53:
            value = int(value)  # 0.0 is 0
        parts.append(orjson.dumps(name))
        parts.append(orjson.dumps(value, option=0 if name in _IN_ORDER else orjson.OPT_SORT_KEYS))
    return b"\n".join(parts)
