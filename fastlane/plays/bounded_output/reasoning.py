"""How many tokens the limit of a request leaves for reasoning."""

from __future__ import annotations

from typing import NamedTuple

from fastlane.knowledge.table import Table
from fastlane.providers import ProviderFacts
from fastlane.providers.output_facts import efforts_of, reasons

UNKNOWN_TOKENS = 25_000
"""Tokens that are left where it is not known how much a model reasons, as OpenAI's guide to reasoning models advises
(https://platform.openai.com/docs/guides/reasoning)."""

# A ceiling that is too high costs nothing unless the model runs on; one that is too low costs the whole answer. How
# much a model reasons about prompts of one kind differs by several times.
_TIMES = 4
_LEAST_TOKENS = 4_096
# Fewer answers say little of the next one.
_ENOUGH = 3
# An estimate of the visible answer differs from the count by its error, the frame of an answer, and white space.
_FRAME_TOKENS = 64


class _Seen(NamedTuple):
    answers: int
    largest: int


class ReasoningTokens:
    """How much models have reasoned, by the answers so far. Threads may share it."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: Table[tuple[str, str | None, str | None], _Seen] = Table("reasoning tokens", max_entries=1_024)

    def headroom(self, origin: str, model: str | None, effort: str | None, facts: ProviderFacts | None) -> int:
        """Return the tokens that the limit of a request's output has to leave beside the visible answer.

        0 where facts say that the model does not reason, that it acts on an effort of "none", or that limits do not
        count reasoning. Else four times the most that was seen, at least 4,096, and at least 25,000 until three answers
        were seen. 0 also where three answers had no reasoning, unless facts say that the model reasons.
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
        """Learn from the tokens of an answer, by the provider's own count.

        `visible_tokens` may be an estimate, and counts all of an answer but its reasoning: every choice, with the
        arguments of tools. An answer that was cut off at its limit has reasoned at least as much as it reports.
        """
        hidden = output_tokens - visible_tokens
        # More than an estimate can be wrong by was reasoning, even where the provider does not report it.
        is_clear = hidden > max(_FRAME_TOKENS, visible_tokens)
        thought = max(reasoning_tokens or 0, hidden if is_clear else 0)

        def change(seen: _Seen | None) -> _Seen:
            answers, largest = seen or (0, 0)
            return _Seen(min(answers + 1, _ENOUGH), max(largest, thought))

        self._seen.update((origin, model, effort), change)


def _is_switched_off(model: str | None, effort: str | None, facts: ProviderFacts | None) -> bool:
    """Whether the model does not reason: it never does, or it acts on an effort of "none"."""
    if reasons(facts, model) is False:
        return True
    if effort != "none":
        return False
    own = efforts_of(facts, model)
    if own is not None:
        return "none" in own
    known = facts.parameters.get("reasoning_effort") if facts is not None else None
    taken = known.value if known is not None else None
    # A server may ignore an effort that it is not known to act on.
    return "none" in taken if isinstance(taken, tuple) else taken is True
