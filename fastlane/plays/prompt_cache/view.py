"""`client.prompt_cache`: what a client's calls found in the provider's cache, and how to fill it beforehand."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from fastlane.errors import ConfigurationError

from .play import PromptCache

if TYPE_CHECKING:
    from fastlane.engine.client_state import ClientState

    from .keep_warm import AsyncKeepWarm, KeepWarm
    from .prewarm import Prewarmed
    from .report import PromptCacheReport


class _View:
    """What the synchronous and the asynchronous client have in common."""

    __slots__ = ("_client",)

    def __init__(self, client: Any) -> None:
        self._client = client

    def _play(self) -> PromptCache:
        shell: ClientState | None = self._client._fastlane
        if shell is None:  # FASTLANE_DISABLED: an application that looks at its report must go on
            return PromptCache()
        for play in shell.pipeline.plays:
            if isinstance(play, PromptCache):
                return play
        raise ConfigurationError(
            "client.prompt_cache needs the play that keeps track of prompts: add PromptCache() to the "
            "only_plays of the client, or make it with plays=..., which keeps the default plays"
        )

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

    def prewarm(
        self, prompt: Sequence[Any], *, model: str, endpoint: str = "/chat/completions", **arguments: Any
    ) -> Prewarmed:
        """Have the provider read the stable part of a prompt into its cache before the first call needs it.

        By the provider's own means where it is known to have some, else by one call that generates one token, which is
        billed. `arguments` are those of the calls that are to come (`tools`, `response_format`). With FASTLANE_DISABLED
        nothing is sent, and `how` is "disabled".
        """
        from .prewarm import prewarm

        return prewarm(self._client, prompt, model=model, endpoint=endpoint, **arguments)

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
        from .keep_warm import KeepWarm

        return KeepWarm(self._client, prompt, model=model, every_s=every_s, max_requests=max_requests, **arguments)


class AsyncPromptCacheView(_View):
    """`client.prompt_cache` of an asynchronous client."""

    def prewarm(
        self, prompt: Sequence[Any], *, model: str, endpoint: str = "/chat/completions", **arguments: Any
    ) -> Coroutine[Any, Any, Prewarmed]:
        """See `PromptCacheView.prewarm`."""
        from .prewarm import async_prewarm

        return async_prewarm(self._client, prompt, model=model, endpoint=endpoint, **arguments)

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
        from .keep_warm import AsyncKeepWarm

        return AsyncKeepWarm(self._client, prompt, model=model, every_s=every_s, max_requests=max_requests, **arguments)
