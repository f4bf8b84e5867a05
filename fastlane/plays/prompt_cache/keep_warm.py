"""Keep a prompt in a provider's cache through the silence between calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import openai

from fastlane._clock import now_ns
from fastlane.engine.user_action import current_action, user_action
from fastlane.errors import ConfigurationError
from fastlane.knowledge import timer
from fastlane.providers import facts_of

from .prewarm import async_prewarm, is_disabled, prewarm, what_stays

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from fastlane.records.record import CallRecord

_NAME = "keep warm"
_SECOND_NS = 1e9
# By so much of the lifetime a request comes before its end: providers say "about", and requests take time.
_MARGIN = 0.1
# A client that has been closed raises RuntimeError.
_FAILURES = (openai.OpenAIError, RuntimeError)


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
            lifetime = facts_of(str(client.base_url)).cache.lifetime_s
            if lifetime is None or lifetime.value is None:
                raise ConfigurationError(
                    "keep_warm() needs every_s=..., in seconds: it is not known how long this provider keeps prompts"
                )
            every_s = lifetime.value * (1 - _MARGIN)
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
        said = {
            "model": self._arguments["model"],
            "every_s": self.every_s,
            "max_requests": self.max_requests,
            "requests": self.requests,
            "error": self.error,
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in said.items())})"

    def _due_in_s(self) -> float | None:
        """Seconds until the next request; None while there is nothing to keep."""
        used = [record for record in self._client.calls if self._is_use(record)]
        latest = max((record.timeline.started_ns for record in used), default=0)
        if latest > self._used_ns:
            self._used_ns, self._sent, self.error = latest, 0, None
        if self.error is not None:  # What the next call finds, it finds.
            return None
        if self._sent >= self.max_requests:
            return None
        return max(0.0, self.every_s - (now_ns() - self._used_ns) / _SECOND_NS)

    def _is_use(self, record: CallRecord) -> bool:
        """Whether a call of the application's has used the prompt; one of another family has not."""
        if record.call_id in self._own or record.outcome == "failed" or record.model != self._arguments["model"]:
            return False
        return not self._families or record.prompt_cache is None or record.prompt_cache.family in self._families

    def _begin(self) -> int:
        self.requests += 1
        self._sent += 1
        return now_ns()

    def _end(self, began_ns: int, action: user_action, error: Exception | None) -> None:
        self._own.update(record.call_id for record in action.calls)
        self.error = None if error is None else type(error).__name__
        if error is None:
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
            began_ns = self._begin()
            failure: Exception | None = None
            with user_action(_NAME) as action:
                try:
                    prewarm(self._client, self._prompt, **self._arguments)
                except _FAILURES as error:
                    failure = error
            self._end(began_ns, action, failure)


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
            began_ns = self._begin()
            failure: Exception | None = None
            async with user_action(_NAME) as action:
                try:
                    await async_prewarm(self._client, self._prompt, **self._arguments)
                except _FAILURES as error:
                    failure = error
            self._end(began_ns, action, failure)
