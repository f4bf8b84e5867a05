"""03 Reuse more: a cache key for prompts that begin alike, and what the provider's cache should hold and does hold."""

from __future__ import annotations

from dataclasses import field
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.engine.session import CallOutcome, MakeSection, Session
from fastlane.engine.settings import settings
from fastlane.protocol.endpoints import GENERATING

from .section import PromptCacheSection

if TYPE_CHECKING:
    from .history import PromptHistory, SentPrompt
    from .key import KeySpreader
else:
    KeySpreader = PromptHistory = Any


@settings
class PromptCache(Play):
    """Send a cache key where the provider takes one, and record what its prompt cache should hold and does hold.

    Where less was read than expected, `record.prompt_cache.drift` says why, once it is looked at. What changes the
    prompt is done for calls that declare what is stable (`fastlane.prompts.Prompt`), and where a setting
    asks for it.
    """

    stage: ClassVar[Stage] = Stage.PREFIX
    section: ClassVar[type[PromptCacheSection]] = PromptCacheSection
    needs_facts: ClassVar[bool] = True
    keeps_bodies: ClassVar[bool] = True

    key: Annotated[bool | Annotated[str, Field(min_length=1)], Field(description="True, False or a text")] = True
    """Whether to send a cache key where the provider takes one; a text: this key, for all calls of the client."""
    kept_bytes: Annotated[int, Field(ge=0)] = 8 * 1024 * 1024
    """Bytes of sent prompts to keep in memory, to compare later prompts with; 0: keep nothing, and expect nothing."""
    retention: Annotated[
        str | None, Field(min_length=1, description='a time in the provider\'s words ("30m"), or None')
    ] = None
    """How long the provider is asked to keep prefixes, in its own words ("30m"), where it takes that."""
    breakpoints: bool = False
    """Whether to mark the ends of stable and session parts where the provider has marks for that."""
    requests_per_key_per_minute: Annotated[float, Field(gt=0)] | None = None
    """From which rate on a family's calls get several keys; None: what is known of the provider. Each process counts
    its own calls: where four share the traffic, give a quarter."""
    history: PromptHistory = field(init=False, repr=False, compare=False)
    """What was sent and read: it is shared by all clients that this object is given to."""
    spreader: KeySpreader = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # With the client and not with `import fastlane`.
        from .history import PromptHistory
        from .key import KeySpreader

        object.__setattr__(self, "history", PromptHistory(self.kept_bytes))
        object.__setattr__(self, "spreader", KeySpreader())

    def open(self, call: Call) -> Session | None:
        """Begin the play's part in a call."""
        return _PromptCacheSession(self) if call.endpoint in GENERATING else None

    def clear(self) -> None:
        """Forget all prompts, counts and rates."""
        self.history.clear()
        self.spreader.clear()


class _PromptCacheSession(Session):
    """One call's prompt at one upstream."""

    __slots__ = ("_play", "_prompt")

    def __init__(self, play: PromptCache) -> None:
        self._play = play
        self._prompt: SentPrompt | None = None

    def plan(self, call: Call) -> Call:
        play, volatile = self._play, 0
        if call.placements is not None:
            from .placing import laid_out

            call = laid_out(call)
            placements = reversed(call.placements or ())
            volatile = sum(1 for _ in takewhile(lambda placement: placement == "volatile", placements))
        prompt = self._prompt = play.history.read(call, volatile)
        if prompt.head.rules.key_field is not None and play.key is not False:
            call = play.spreader.with_key(call, prompt, play)
        play.history.expect(prompt)
        if play.retention is not None or play.breakpoints:
            # Marks are no part of what the model reads.
            from .placing import with_breakpoints, with_retention

            call = call if play.retention is None else with_retention(call, play.retention)
            call = with_breakpoints(call) if play.breakpoints else call
        return call

    def close(self, outcome: CallOutcome) -> MakeSection | None:
        prompt, self._prompt = self._prompt, None
        if prompt is None:
            return None
        history = self._play.history
        if prompt.key_field in outcome.refused:
            history.forget_key(prompt)
        history.enter(prompt, outcome)
        return partial(history.settle, prompt)
