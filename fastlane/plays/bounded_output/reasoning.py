"""How many tokens a request leaves for what a model thinks before it answers."""

from __future__ import annotations

from typing import NamedTuple

from fastlane.knowledge.table import Table
from fastlane.providers import ProviderFacts
from fastlane.providers.output_facts import efforts_of, reasons

UNKNOWN_TOKENS = 25_000
"""What is left where nobody knows how long a model thinks: as much as OpenAI's guide to reasoning models advises to
leave for it (https://platform.openai.com/docs/guides/reasoning)."""

# A ceiling that is too high costs nothing unless the model runs on; one that is too low costs the whole answer. How
# long a model thinks about prompts of one kind differs by several times.
_TIMES = 4
_LEAST_TOKENS = 4_096
# Of so few answers the longest says little of the next, and none that nothing was thought says anything.
_ENOUGH = 3
# Between what was counted and what was estimated of the visible answer lies also what estimates are wrong by, the
# tokens that frame an answer, and white space.
_FRAME_TOKENS = 64


class _Seen(NamedTuple):
    answers: int
    largest: int


class ReasoningTokens:
    """What answers have shown of how long models think. Threads may share it."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: Table[tuple[str, str | None, str | None], _Seen] = Table("reasoning tokens", max_entries=1_024)

    def headroom(self, origin: str, model: str | None, effort: str | None, facts: ProviderFacts | None) -> int:
        """Return the tokens that the limit of a request's output has to leave beside the visible answer.

        0 for a model of which facts say that it does not think, for an effort of "none" that it is known to act on, and
        where the limit does not count what is thought. Else four times the most that was seen, no less than 4,096, and
        no less than 25,000 until three answers were. 0 also where three answers showed no thought, unless facts say
        that the model thinks: it may have had no reason to.
        """
        if facts is not None and facts.reasoning.counted is not None and facts.reasoning.counted.value is False:
            return 0
        seen = self._seen.get((origin, model, effort)) or _Seen(0, 0)
        if seen.largest:
            learnt = max(seen.largest * _TIMES, _LEAST_TOKENS)
            return learnt if seen.answers >= _ENOUGH else max(learnt, UNKNOWN_TOKENS)
        if _is_switched_off(model, effort, facts):
            return 0
        if seen.answers < _ENOUGH:
            return UNKNOWN_TOKENS
        return _LEAST_TOKENS if reasons(facts, model) else 0

    def learn(
        self,
        origin: str,
        model: str | None,
        effort: str | None,
        *,
        visible_tokens: int,
        output_tokens: int,
        reasoning_tokens: int | None,
    ) -> None:
        """Take note of an answer: what could be seen of it, what was paid for, and what was said to be reasoning.

        `visible_tokens` may be an estimate, and is of all that can be seen of an answer but its reasoning: of every
        choice, with the arguments of tools. An answer without the provider's own count says nothing: do not tell it.
        One that was cut off at its limit has thought at least as long as it says.
        """
        hidden = output_tokens - visible_tokens
        # What cannot be an estimate's mistake was thought, even where the provider does not say so.
        is_clear = hidden > max(_FRAME_TOKENS, visible_tokens)
        thought = max(reasoning_tokens or 0, hidden if is_clear else 0)

        def change(seen: _Seen | None) -> _Seen:
            answers, largest = seen or (0, 0)
            return _Seen(min(answers + 1, _ENOUGH), max(largest, thought))

        self._seen.update((origin, model, effort), change)


def _is_switched_off(model: str | None, effort: str | None, facts: ProviderFacts | None) -> bool:
    """Whether nothing is thought: because the model never does, or because it was told not to, and heeds that."""
    if reasons(facts, model) is False:
        return True
    if effort != "none":
        return False
    own = efforts_of(facts, model)
    if own is not None:
        return "none" in own
    known = facts.parameters.get("reasoning_effort") if facts is not None else None
    taken = known.value if known is not None else None
    # A server of which nobody knows whether it heeds the word may pass over it, and think.
    return "none" in taken if isinstance(taken, tuple) else taken is True
