"""`client.prompt_cache`: fill the provider's cache before calls need it, and keep it filled."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeVar

import openai

from fastlane.compat.parsing import with_response_format, with_text_format
from fastlane.engine.user_action import current_action, user_action
from fastlane.errors import ConfigurationError
from fastlane.knowledge import timer
from fastlane.protocol.endpoints import CHAT, PROMPT_FIELDS, RESPONSES
from fastlane.protocol.usage import usage_of
from fastlane.providers import facts_of
from fastlane.providers.facts import value_of
from fastlane.records.usage import Usage

from .placing import place_breakpoints, takes_marks
from .play import PromptCache
from .prompts import Marked, arrange, unmarked

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

K = TypeVar("K")

# The least that OpenAI's /responses take: https://github.com/earendil-works/pi/issues/6265
_LEAST_RESPONSE: Final = 16
# A user's turn, which most templates want, of one token.
_TURN: Final = {"role": "user", "content": "."}
# The error of an answer that ended before its first visible token, when the prompt had been read:
# https://github.com/spiceai/spiceai/issues/7126
_READ_ALL_THE_SAME: Final = "output limit was reached"
# What would make the answer longer, or another kind of thing.
_NOT_PASSED_ON: Final = (
    "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "stream", "stream_options", "background",
    "prediction",
)  # fmt: skip
# By so much of the lifetime a request comes before its end: providers say "about", and requests take time.
_MARGIN: Final = 0.1
# A client that has been closed raises RuntimeError.
_FAILURES: Final = (openai.OpenAIError, RuntimeError)


def _is_disabled(client: Any) -> bool:
    """Return whether it is a client of ours that was made with FASTLANE_DISABLED, and does what the stock one does."""
    return getattr(client, "_fastlane", True) is None


def _create_of(client: Any, endpoint: str) -> Any:
    return client.chat.completions.create if endpoint == CHAT else client.responses.create


def _usage_of(client: Any, endpoint: str, answer: Any) -> Usage:
    path = (value_of(facts_of(str(client.base_url)).usage.get(endpoint)) or {}).get("cached", "")
    return usage_of(getattr(answer, "usage", None), path.split(".")[1:])


def _arguments(
    client: Any, prompt: Sequence[Any], model: str, endpoint: str, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of the call that fills the cache. Raises ConfigurationError for what cannot be prewarmed."""
    if endpoint not in (CHAT, RESPONSES):
        raise ConfigurationError(
            f'prewarm(endpoint=...) takes "{CHAT}" or "{RESPONSES}", whose prompts have parts, got {endpoint!r:.80}'
        )
    facts, name = facts_of(str(client.base_url)), PROMPT_FIELDS[endpoint]
    kept, places, is_declared = _stable_part(prompt)
    given = {key: value for key, value in arguments.items() if key not in _NOT_PASSED_ON and key != name}
    # The answer is too short to be parsed: only what `parse()` sends is needed.
    given = with_text_format(with_response_format(given)) | {"model": model}
    given.pop("text_format", None)
    if endpoint == RESPONSES:
        limit = {"max_output_tokens": _LEAST_RESPONSE}
        if value_of(facts.parameters.get("store")) is True:
            given = {"store": False, **given}
    else:
        # The older field unless the newer one is known to be taken.
        is_newer = value_of(facts.parameters.get("max_completion_tokens")) is True
        limit = {"max_completion_tokens" if is_newer else "max_tokens": 1}
    items, places = [*kept, _TURN], (*places, "volatile")
    if takes_marks(model, facts):
        placed = place_breakpoints(endpoint, {**given, name: items}, places, facts)
        items = items if placed is None else placed[1]
    if is_declared:
        # Plays lay out the calls that are to come by their declarations, and this one alike.
        items = [
            Marked(item, place) if isinstance(item, Mapping) else item
            for item, place in zip(items, places, strict=True)
        ]
    return {**given, name: items, **limit}


def _stable_part(prompt: Sequence[Any]) -> tuple[list[Any], tuple[Any, ...], bool]:
    """Return the messages of a prompt that stay, in order, how long each does, and whether the caller declared that.

    Raises ConfigurationError if none stays.
    """
    if isinstance(prompt, str | Mapping) or not isinstance(prompt, Sequence):
        raise ConfigurationError(
            f"prewarm() takes a fastlane.prompts.Prompt or a list of messages, got {type(prompt).__name__}"
        )
    plain, declared = unmarked(prompt)
    messages, places = arrange(plain, declared or ())
    # If nothing was declared, what comes after the system's messages may be the first question of many.
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
    """The requests that keep a prompt in the cache, and what came of them so far."""

    def __init__(
        self,
        client: Any,
        prompt: Sequence[Any],
        *,
        model: str,
        every_s: float | None,
        max_requests: int,
        **arguments: Any,
    ) -> None:
        """Send a request every `every_s` seconds, `max_requests` in all.

        `every_s`: None takes nine tenths of the time that the provider is known to keep prompts for. Raises
        ConfigurationError if that is not known, and for what cannot be kept.
        """
        if every_s is None:
            lifetime_s = value_of(facts_of(str(client.base_url)).cache.lifetime_s)
            if lifetime_s is None:
                raise ConfigurationError(
                    "keep_warm() needs every_s=..., in seconds: it is not known how long this provider keeps prompts"
                )
            every_s = lifetime_s * (1 - _MARGIN)
        if not 0 < every_s < math.inf:
            raise ConfigurationError(f"keep_warm(every_s=...) takes seconds above 0, got {every_s!r:.80}")
        if max_requests < 1:
            raise ConfigurationError(
                f"keep_warm(max_requests=...) takes a whole number from 1, got {max_requests!r:.80}"
            )
        _stable_part(prompt)  # Raises here, and not in the background.
        self.every_s = every_s
        self.max_requests = 0 if _is_disabled(client) else max_requests
        self.requests = 0
        """Requests that were sent so far, those that failed included."""
        self.error: str | None = None
        """Class name of the error that the last request ended with; None if it succeeded."""
        self._client = client
        self._prompt = prompt
        self._arguments = {"model": model, **arguments}

    @contextmanager
    def _sending(self) -> Iterator[None]:
        """Count a request, and keep its failure from the application."""
        self.requests += 1
        self.error = None
        with user_action("keep warm"):
            try:
                yield
            except _FAILURES as error:
                self.error = type(error).__name__


class KeepWarm(_Keeper):
    """Keeps a prompt in the cache, from other threads, for as long as the block runs.

    `with client.prompt_cache.keep_warm(prompt, model=...):` sends what `prewarm(prompt, ...)` sends every `every_s`
    seconds, `max_requests` times, and nothing if FASTLANE_DISABLED is set. A request that fails raises nothing: see
    `error`. One that is under way when the block ends is not waited for.
    """

    _is_over = False
    _next: timer.Handle | None = None

    def __enter__(self) -> Self:
        self._is_over = False
        self._next = timer.call_later(self.every_s, self._run, in_thread=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if self._next is not None:
            self._next.cancel()

    def _run(self) -> None:
        if not self._is_over and self.requests < self.max_requests:
            with self._sending():
                PromptCacheView(self._client).prewarm(self._prompt, **self._arguments)
            self._next = timer.call_later(self.every_s, self._run, in_thread=True)


class AsyncKeepWarm(_Keeper):
    """See `KeepWarm`; in a task of its own, for an asynchronous client and an `async with` block."""

    async def __aenter__(self) -> Self:
        import anyio

        self._tasks: TaskGroup = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._tasks.cancel_scope.cancel()
        return await self._tasks.__aexit__(kind, error, trace)

    async def _run(self) -> None:
        import anyio

        # The task has the context of the block, whose user action these requests are no part of.
        current_action.set(None)
        while self.requests < self.max_requests:
            await anyio.sleep(self.every_s)
            with self._sending():
                await AsyncPromptCacheView(self._client).prewarm(self._prompt, **self._arguments)


# The view of a client


class _View(Generic[K]):
    """The code shared by the views of synchronous and asynchronous clients."""

    _keeper: ClassVar[Any]

    def __init__(self, client: Any) -> None:
        self._client = client

    def clear(self) -> None:
        """Forget all prompts and rates. Raises ConfigurationError if the client has no play `PromptCache`."""
        shell = self._client._fastlane
        plays = () if shell is None else shell.pipeline.plays
        found = [play for play in plays if isinstance(play, PromptCache)]
        if not found and shell is not None:
            raise ConfigurationError(
                "client.prompt_cache needs the PromptCache play: add PromptCache() to only_plays=[...], or use "
                "plays=[...], which keeps the default plays"
            )
        for play in found:
            play.clear()

    def keep_warm(
        self,
        prompt: Sequence[Any],
        *,
        model: str,
        every_s: float | None = None,
        max_requests: int = 12,
        **arguments: Any,
    ) -> K:
        """Keep a prompt in the cache for as long as a block runs: `with`, or `async with` for an asynchronous client.

        Each request bills the prompt at the price of cached tokens: see `KeepWarm`.
        """
        keeper: K = self._keeper(
            self._client, prompt, model=model, every_s=every_s, max_requests=max_requests, **arguments
        )
        return keeper


class PromptCacheView(_View[KeepWarm]):
    """`client.prompt_cache` of a synchronous client."""

    _keeper = KeepWarm

    def prewarm(self, prompt: Sequence[Any], *, model: str, endpoint: str = CHAT, **arguments: Any) -> Usage:
        """Have the provider read the stable part of a prompt before the first call needs it, with one call.

        It is what was declared stable or of the session (`fastlane.prompts.Prompt`), and if nothing was declared, the
        leading system and developer messages. `arguments` are those of the calls to come, such as `tools` and
        `response_format`: they are part of what is cached. The call generates one token (16 at /responses), which is
        billed as any call is. Returns what the provider counted: `input_tokens`, and of these `cached_tokens` and
        `cache_write_tokens`. With FASTLANE_DISABLED nothing is sent. Raises ConfigurationError if nothing of the prompt
        stays, or for another endpoint, and what the call raises.
        """
        if _is_disabled(self._client):
            return Usage()
        asked = _arguments(self._client, prompt, model, endpoint, arguments)
        try:
            answer = _create_of(self._client, endpoint)(**asked)
        except openai.BadRequestError as error:
            if _READ_ALL_THE_SAME not in str(error):
                raise
            return Usage()
        return _usage_of(self._client, endpoint, answer)


class AsyncPromptCacheView(_View[AsyncKeepWarm]):
    """`client.prompt_cache` of an asynchronous client."""

    _keeper = AsyncKeepWarm

    async def prewarm(self, prompt: Sequence[Any], *, model: str, endpoint: str = CHAT, **arguments: Any) -> Usage:
        """See `PromptCacheView.prewarm`."""
        if _is_disabled(self._client):
            return Usage()
        asked = _arguments(self._client, prompt, model, endpoint, arguments)
        try:
            answer = await _create_of(self._client, endpoint)(**asked)
        except openai.BadRequestError as error:
            if _READ_ALL_THE_SAME not in str(error):
                raise
            return Usage()
        return _usage_of(self._client, endpoint, answer)
