"""`client.prompt_cache`: what calls found in the provider's cache, and how to fill it before they need it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self

import openai

from fastlane._clock import now_ns
from fastlane.compat.parsing import with_response_format, with_text_format
from fastlane.engine.user_action import current_action, user_action
from fastlane.errors import ConfigurationError
from fastlane.knowledge import timer
from fastlane.protocol.endpoints import CHAT, PROMPT_FIELDS, RESPONSES
from fastlane.protocol.usage import usage_counts
from fastlane.providers import facts_of

from .history import value_of
from .placing import place_breakpoints, takes_marks
from .play import PromptCache
from .prompts import Marked, Prompt, arrange, unmarked

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from fastlane.providers import ProviderFacts
    from fastlane.records.record import CallRecord

    from .report import PromptCacheReport

# The least that OpenAI's /responses take: https://github.com/earendil-works/pi/issues/6265
_LEAST_RESPONSE: Final = 16
# A user's turn, which most templates want, of one token.
_TURN: Final = {"role": "user", "content": "."}
# What is said of an answer that ended before its first visible token, when the prompt had been read:
# https://github.com/spiceai/spiceai/issues/7126
_READ_ALL_THE_SAME: Final = "output limit was reached"
_TOO_FEW: Final = "minimum value"
# What would make the answer longer, or another kind of thing.
_NOT_PASSED_ON: Final = (
    "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "stream", "stream_options", "background",
    "prediction",
)  # fmt: skip
_NAME: Final = "keep warm"
# By so much of the lifetime a request comes before its end: providers say "about", and requests take time.
_MARGIN: Final = 0.1
_REFUSALS: Final = (openai.BadRequestError, openai.UnprocessableEntityError)
# A client that has been closed raises RuntimeError.
_FAILURES: Final = (openai.OpenAIError, RuntimeError)


class Prewarmed(NamedTuple):
    """What was read into the cache, by the provider's own count."""

    tokens: int | None
    """Tokens of the prompt that was read; None where the provider did not say."""
    cached_tokens: int | None
    """Of these, what was in the cache already; None where the provider did not say, which is not 0."""
    cache_write_tokens: int | None
    """Of these, what was written to the cache, where that is counted."""
    how: Literal["provider", "call", "disabled"]
    """"provider": by the provider's own means, and nothing was generated; "call": by a call of one short answer;
    "disabled": not at all, because FASTLANE_DISABLED is set, and nothing was sent."""


def is_disabled(client: Any) -> bool:
    """Return whether it is a client of ours that was made with FASTLANE_DISABLED, and does what the stock one does."""
    return getattr(client, "_fastlane", True) is None


def _prepared(
    client: Any, prompt: Sequence[Any], model: str, endpoint: str, arguments: Mapping[str, Any]
) -> tuple[ProviderFacts, Sequence[_PrewarmRequest]]:
    """Return what is known of the provider, and what to call with, one after the other until one is taken."""
    facts = facts_of(str(client.base_url))
    if is_disabled(client):
        return facts, ()
    if endpoint not in (CHAT, RESPONSES):
        raise ConfigurationError(
            f'prewarm(endpoint=...) takes "{CHAT}" or "{RESPONSES}", whose prompts have parts, got {endpoint!r:.80}'
        )
    return facts, [*_requests(facts, prompt, model, endpoint, arguments)]


def _prewarmed(facts: ProviderFacts, endpoint: str, request: _PrewarmRequest, answer: Any) -> Prewarmed:
    path = (value_of(facts.usage.get(endpoint)) or {}).get("cached", "")
    usage = usage_counts(getattr(answer, "usage", None), path.split(".")[1:])
    return Prewarmed(
        usage.get("input_tokens"), usage.get("cached_tokens"), usage.get("cache_write_tokens"), request.how
    )


def _was_read(request: _PrewarmRequest, error: openai.APIStatusError) -> bool:
    """Return whether a provider that refused a request has read its prompt. Raises the error if that was refused."""
    if _READ_ALL_THE_SAME in str(error):
        return True
    # Only the means were refused, and not the prompt.
    if request.is_last or not (request.how == "provider" or _TOO_FEW in str(error)):
        raise error
    return False


class _PrewarmRequest(NamedTuple):
    how: Literal["provider", "call"]
    arguments: dict[str, Any]
    is_last: bool = False


def _create_of(client: Any, endpoint: str) -> Any:
    return client.chat.completions.create if endpoint == CHAT else client.responses.create


def _requests(
    facts: ProviderFacts, prompt: Sequence[Any], model: str, endpoint: str, arguments: Mapping[str, Any]
) -> Iterator[_PrewarmRequest]:
    name = PROMPT_FIELDS[endpoint]
    kept, places, was_declared = what_stays(prompt)
    has_marks = takes_marks(model, facts)
    given = {**(prompt.arguments(endpoint) if isinstance(prompt, Prompt) else {}), **arguments}
    given = {key: value for key, value in given.items() if key not in _NOT_PASSED_ON and key != name}
    # The answer is too short to be parsed: only what `parse()` sends is needed.
    given = with_text_format(with_response_format(given)) | {"model": model}
    given.pop("text_format", None)
    if endpoint == RESPONSES and value_of(facts.parameters.get("store")) is True:
        given = {"store": False, **given}

    def prepared(*turn: Any) -> dict[str, Any]:
        items, declared = [*kept, *turn], (*places, *("volatile" for _ in turn))
        placed = place_breakpoints(endpoint, {**given, name: items}, declared, facts) if has_marks else None
        items = items if placed is None else placed[1]
        if was_declared:
            # What plays do to the calls that are to come, they are to do to this one: it is declared alike.
            items = [
                Marked(item, place) if isinstance(item, Mapping) else item
                for item, place in zip(items, declared, strict=True)
            ]
        return {**given, name: items}

    field = value_of(facts.cache.prewarm_field.get(endpoint))
    if field is not None and has_marks:
        head, _, rest = field.partition(".")
        own = prepared()
        # In `extra_body`, because an older openai does not know the field; there, it is laid over the rest.
        extra = dict(own.pop("extra_body", None) or {})
        extra[head] = {**(extra.get(head) or own.pop(head, None) or {}), rest: True} if rest else True
        own.pop(head, None)
        yield _PrewarmRequest("provider", {**own, "extra_body": extra})
    if endpoint == RESPONSES:
        limit = "max_output_tokens"
    else:
        # The older field wherever the newer one is not known to be taken.
        is_newer = value_of(facts.parameters.get("max_completion_tokens")) is True
        limit = "max_completion_tokens" if is_newer else "max_tokens"
        yield _PrewarmRequest("call", {**prepared(_TURN), limit: 1})
    yield _PrewarmRequest("call", {**prepared(_TURN), limit: _LEAST_RESPONSE}, is_last=True)


def what_stays(prompt: Sequence[Any]) -> tuple[list[Any], tuple[Any, ...], bool]:
    """Return the messages of a prompt that stay, in order, how long each does, and whether the caller declared that.

    Raises ConfigurationError where none stays.
    """
    if isinstance(prompt, str | Mapping) or not isinstance(prompt, Sequence):
        raise ConfigurationError(
            f"prewarm() takes a fastlane.prompts.Prompt or a list of messages, got {type(prompt).__name__}"
            + (": put it into a list" if isinstance(prompt, str | Mapping) else "")
        )
    plain, declared = unmarked(prompt)
    messages, places = arrange(plain, declared or ())
    # Where nothing was declared, what comes after the system's messages may be the first question of many.
    stay = ("stable",) if declared is None else ("stable", "session")
    end = next((at for at, place in enumerate(places) if place not in stay), len(places))
    if not end:
        raise ConfigurationError(
            "prewarm() found nothing in the prompt that stays as it is: it takes messages of which some are declared "
            "stable (Prompt(stable=...), stable(message) of fastlane.prompts) or that begin with a system message"
        )
    return messages[:end], places[:end], declared is not None


# Again and again


class _Keeper:
    """What the two have in common: when the next request is due, and what has come of those so far."""

    def __init__(
        self,
        client: Any,
        prompt: Sequence[Any],
        *,
        model: str,
        every_s: float | None = None,
        max_requests: int = 12,
        **arguments: Any,
    ) -> None:
        """Keep `prompt` with a request after each `every_s` of silence, `max_requests` times in one silence.

        `every_s`: None takes nine tenths of the time that the provider is known to keep prompts for. Raises
        ConfigurationError where that is not known, and for what cannot be kept.
        """
        if every_s is None:
            lifetime_s = value_of(facts_of(str(client.base_url)).cache.lifetime_s)
            if lifetime_s is None:
                raise ConfigurationError(
                    "keep_warm() needs every_s=..., in seconds: it is not known how long this provider keeps prompts"
                )
            every_s = lifetime_s * (1 - _MARGIN)
        if isinstance(every_s, bool) or not isinstance(every_s, int | float) or not 0 < every_s < math.inf:
            raise ConfigurationError(f"keep_warm(every_s=...) takes seconds above 0, got {every_s!r:.80}")
        if isinstance(max_requests, bool) or not isinstance(max_requests, int) or max_requests < 1:
            raise ConfigurationError(
                f"keep_warm(max_requests=...) takes a whole number from 1, got {max_requests!r:.80}"
            )
        what_stays(prompt)  # Raises here, and not where nobody sees it.
        self.every_s = every_s
        self.max_requests = max_requests
        self.requests = 0
        """Requests that were sent to keep the prompt, those that failed included."""
        self.error: str | None = None
        """Class name of the error that the last request ended with; None where it did not."""
        self._client = client
        self._prompt = prompt
        self._arguments = {"model": model, **arguments}
        self._used_ns = now_ns()
        self._sent = 0
        self._own: set[str] = set()
        self._families: set[str] = set()

    def __repr__(self) -> str:
        # Of the arguments only what cannot be text of a prompt.
        return (
            f"{type(self).__name__}(model={self._arguments['model']!r}, every_s={self.every_s!r}, "
            f"max_requests={self.max_requests!r}, requests={self.requests!r}, error={self.error!r})"
        )

    def _due_in_s(self) -> float | None:
        """Return the seconds until the next request; None while there is nothing to keep."""
        used = [record for record in self._client.calls if self._is_use(record)]
        latest = max((record.timeline.started_ns for record in used), default=0)
        if latest > self._used_ns:
            self._used_ns, self._sent, self.error = latest, 0, None
        if self.error is not None or self._sent >= self.max_requests:  # What the next call finds, it finds.
            return None
        return max(0.0, self.every_s - (now_ns() - self._used_ns) / 1e9)

    def _is_use(self, record: CallRecord) -> bool:
        """Whether a call of the application's has used the prompt; one of another family has not."""
        if record.call_id in self._own or record.outcome == "failed" or record.model != self._arguments["model"]:
            return False
        return not self._families or record.prompt_cache is None or record.prompt_cache.family in self._families

    @contextmanager
    def _sending(self) -> Iterator[None]:
        """Count a request, and keep its failure from the application."""
        self.requests += 1
        self._sent += 1
        began_ns, self.error = now_ns(), None
        with user_action(_NAME) as action:
            try:
                yield
            except _FAILURES as error:
                self.error = type(error).__name__
        self._own.update(record.call_id for record in action.calls)
        if self.error is None:
            self._used_ns = max(self._used_ns, began_ns)
            self._families.update(record.prompt_cache.family for record in action.calls if record.prompt_cache)


class KeepWarm(_Keeper):
    """Keeps a prompt in the cache, from other threads, for as long as the block runs.

    `with KeepWarm(client, prompt, model=...):` sends what `client.prompt_cache.prewarm(prompt, ...)` sends after each
    `every_s` of silence, `max_requests` times in one silence, and nothing where FASTLANE_DISABLED is set.
    Calls of the client with this model that begin like the prompt end the silence. A request that fails is not repeated
    before the next call, and raises nothing: see `error`. One that is under way when the block ends is not waited for.
    """

    _over = False
    _planned: timer.Handle | None = None

    def __enter__(self) -> Self:
        self._over = False
        if not is_disabled(self._client):
            self._planned = timer.call_later(0.0, self._run, in_thread=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        if self._planned is not None:
            self._planned.cancel()

    def _run(self) -> None:
        """Send a request if it is due, and plan the next look."""
        while not self._over:
            due_in_s = self._due_in_s()
            if due_in_s is None or due_in_s > 0:
                wait_s = self.every_s if due_in_s is None else due_in_s
                self._planned = timer.call_later(wait_s, self._run, in_thread=True)
                return
            with self._sending():
                PromptCacheView(self._client).prewarm(self._prompt, **self._arguments)


class AsyncKeepWarm(_Keeper):
    """See `KeepWarm`; in a task of its own, for an asynchronous client: `async with AsyncKeepWarm(...):`."""

    _tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        if not is_disabled(self._client):
            import anyio

            self._tasks = anyio.create_task_group()
            await self._tasks.__aenter__()
            self._tasks.start_soon(self._run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._tasks is None:
            return None
        self._tasks.cancel_scope.cancel()
        return await self._tasks.__aexit__(kind, error, trace)

    async def _run(self) -> None:
        import anyio

        # The task has the context of the block, whose user action these requests are no part of.
        current_action.set(None)
        while True:
            due_in_s = self._due_in_s()
            if due_in_s is None or due_in_s > 0:
                await anyio.sleep(self.every_s if due_in_s is None else due_in_s)
                continue
            with self._sending():
                await AsyncPromptCacheView(self._client).prewarm(self._prompt, **self._arguments)


# The view of a client


class _View:
    """What the synchronous and the asynchronous client have in common."""

    __slots__ = ("_client",)

    def __init__(self, client: Any) -> None:
        self._client = client

    def _play(self) -> PromptCache:
        shell = self._client._fastlane
        if shell is None:  # FASTLANE_DISABLED: an application that looks at its report must go on
            return PromptCache()
        play = next((play for play in shell.pipeline.plays if isinstance(play, PromptCache)), None)
        if play is None:
            raise ConfigurationError(
                "client.prompt_cache needs the play that keeps track of prompts: add PromptCache() to the "
                "only_plays of the client, or make it with plays=..., which keeps the default plays"
            )
        return play

    def report(self) -> PromptCacheReport:
        """Return what calls should have found in the cache, what they did find and why not more, family by family.

        Of all clients that share the `PromptCache` object. Raises ConfigurationError where the client has none.
        """
        return self._play().history.report()

    def clear(self) -> None:
        """Forget all prompts, counts and rates. Raises ConfigurationError as `report` does."""
        self._play().clear()


class PromptCacheView(_View):
    """`client.prompt_cache` of a synchronous client."""

    def prewarm(self, prompt: Sequence[Any], *, model: str, endpoint: str = CHAT, **arguments: Any) -> Prewarmed:
        """Have the provider read what stays of a prompt before the first call needs it, with one call of the client.

        What stays is what was declared stable or of the session (`fastlane.prompts.Prompt`), and if nothing was
        declared, the leading system and developer messages. `arguments` are those of the calls to come, such as `tools`
        and `response_format`: they are part of what is kept. If facts say that the provider has means of its own for
        this model, it generates nothing; otherwise, or if it refuses them, it generates one token (16 at /responses),
        which is billed as any call is. With FASTLANE_DISABLED nothing is sent. Raises ConfigurationError if nothing of
        the prompt stays, or for another endpoint, and what the call raises.
        """
        facts, requests = _prepared(self._client, prompt, model, endpoint, arguments)
        for request in requests:
            try:
                answer = _create_of(self._client, endpoint)(**request.arguments)
            except _REFUSALS as error:
                if _was_read(request, error):
                    return Prewarmed(None, None, None, request.how)
            else:
                return _prewarmed(facts, endpoint, request, answer)
        return Prewarmed(None, None, None, "disabled")

    def keep_warm(
        self,
        prompt: Sequence[Any],
        *,
        model: str,
        every_s: float | None = None,
        max_requests: int = 12,
        **arguments: Any,
    ) -> KeepWarm:
        """Keep a prompt in the cache through the silence between calls, for as long as a `with` block runs.

        Each request bills the prompt at the price of cached tokens: see `KeepWarm`.
        """
        return KeepWarm(self._client, prompt, model=model, every_s=every_s, max_requests=max_requests, **arguments)


class AsyncPromptCacheView(_View):
    """`client.prompt_cache` of an asynchronous client."""

    async def prewarm(self, prompt: Sequence[Any], *, model: str, endpoint: str = CHAT, **arguments: Any) -> Prewarmed:
        """See `PromptCacheView.prewarm`."""
        facts, requests = _prepared(self._client, prompt, model, endpoint, arguments)
        for request in requests:
            try:
                answer = await _create_of(self._client, endpoint)(**request.arguments)
            except _REFUSALS as error:
                if _was_read(request, error):
                    return Prewarmed(None, None, None, request.how)
            else:
                return _prewarmed(facts, endpoint, request, answer)
        return Prewarmed(None, None, None, "disabled")

    def keep_warm(
        self,
        prompt: Sequence[Any],
        *,
        model: str,
        every_s: float | None = None,
        max_requests: int = 12,
        **arguments: Any,
    ) -> AsyncKeepWarm:
        """See `PromptCacheView.keep_warm`; for an `async with` block."""
        return AsyncKeepWarm(self._client, prompt, model=model, every_s=every_s, max_requests=max_requests, **arguments)
