"""What a call's record says of its prompt: what was read from the provider's cache, why not more, and what was cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal

from .section import RecordSection

DriftKind = Literal[
    "timestamp", "uuid", "counter", "random", "whitespace", "reordered_keys", "reordered_tools", "changed_tool",
    "changed", "changed_model", "changed_parameter", "compacted", "expired", "evicted",
]  # fmt: skip
"""What broke the beginning that a prompt had in common with an earlier one.

- timestamp, uuid, counter, random: a value of this sort differs, and nothing before it
- whitespace, reordered_keys, reordered_tools: the same content, written otherwise
- changed_tool: a tool was added, removed or edited
- changed: a message or a response format was edited, or it is not certain how
- changed_model, changed_parameter: the prompt is the same, but what else the provider keeps caches apart by is not
- compacted: messages in the middle were dropped, summarised or shortened
- expired: the same beginning, but its last use lies longer ago than the provider keeps it
- evicted: the same beginning, and recent, and yet not read from the cache: given up early, or on another machine
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Where and how a prompt departs from the earlier one that it was expected to begin like."""

    kind: DriftKind
    path: str | None
    """The value in the request's body, such as "messages[0].content" or "tools[2].function.description"; None where no
    value differs (expired, evicted)."""
    character: int | None = None
    """Characters of that value before the difference, None where it is not a text."""
    token_offset: int = 0
    """Tokens of the prompt before the difference, estimated."""
    tokens_lost: int = 0
    """Tokens that an unbroken beginning would have in common with the earlier prompt, beyond those that this has."""
    provider_reason: str | None = None
    """The provider's own word for it, where it gives one ("tools_changed")."""
    before: str | None = None
    """The text around the difference in the earlier prompt; only with `PromptCache(quote=True)`."""
    after: str | None = None
    """The same text in this prompt; only with `PromptCache(quote=True)`."""

    @property
    def diff(self) -> str | None:
        """What changed, word by word ("- 10:04:11", "+ 10:04:37"); None without both texts."""
        if self.before is None or self.after is None:
            return None
        import difflib

        changed = difflib.ndiff(self.before.split(), self.after.split())
        return "\n".join(line for line in changed if line[0] in "+-")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCacheRecord(RecordSection):
    """What a call should have found in the provider's prompt cache, and what it did find."""

    name: ClassVar[str] = "prompt_cache"

    family: str
    """Tells prompts of one kind from others: origin, model, key and leading segments. A keyed hash, not the text."""
    prompt_tokens: int
    """As the provider counted; estimated where it did not say."""
    reusable_tokens: int
    """Tokens of the prompt's beginning that an earlier call has sent alike, and that have not expired, estimated."""
    expected_tokens: int | None
    """Of these, what the provider keeps by its facts (whole blocks, above its minimum); None where nobody knows that it
    keeps anything."""
    cached_tokens: int | None
    """What it read from its cache, by its own word; None where it says nothing, which is not 0."""
    explanation: Drift | Callable[[], Drift | None] | None = field(default=None, repr=False, compare=False)
    """The drift, or what finds it when it is first looked at."""
    key: str | None = None
    """The cache key that was sent."""
    shards: int = 1
    """Among how many keys the family's calls were spread when this one was sent."""

    @property
    def drift(self) -> Drift | None:
        """Why less was read than an unbroken prompt would have given; None where nothing was lost.

        Prompts are compared when this is first looked at, which takes milliseconds. None as well where the earlier
        prompt is no longer kept: see `PromptCache.kept_bytes`.
        """
        explanation = self.explanation
        if callable(explanation):
            explanation = explanation()
            object.__setattr__(self, "explanation", explanation)
        return explanation

    @property
    def hit_ratio(self) -> float | None:
        """The share of the prompt that was read from the cache; None where the provider does not say."""
        if self.cached_tokens is None or self.prompt_tokens <= 0:
            return None
        return min(1.0, self.cached_tokens / self.prompt_tokens)

    def to_dict(self) -> dict[str, Any]:
        """The section as plain JSON data."""
        drift = self.drift  # found before: what finds it is no JSON
        shown = asdict(self)
        del shown["explanation"]
        return {**shown, "drift": None if drift is None else asdict(drift), "hit_ratio": self.hit_ratio}

    def __getstate__(self) -> list[Any]:
        # A copy has the drift, and not the memory of prompts that finds it.
        return [self.drift if each.name == "explanation" else getattr(self, each.name) for each in fields(self)]


CutKind = Literal["repeated", "stubbed", "turn"]
"""Why a part of a conversation was cut: a tool's result that a later call has got again; an old result, replaced by one
line; an old turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One message that is sent shortened, or not at all."""

    kind: CutKind
    path: str
    """The message as the caller wrote it: "messages[7]"."""
    tokens: int
    """Tokens saved, estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextTrimmingRecord(RecordSection):
    """How a conversation was kept within its budget."""

    name: ClassVar[str] = "context_trimming"

    tokens_before: int
    """Of the conversation as the caller gave it, estimated."""
    tokens_after: int
    """As it was sent."""
    cuts: tuple[Cut, ...] = ()
    """All cuts that are in force in this call, those of earlier calls too."""
    new_cuts: int = 0
    """How many of them were first made with this call, which breaks the prefix once; 0: it is the last call's."""
    batches: int = 0
    """How often this conversation has been cut from the high to the low water mark."""
    ratio: float | None = None
    """By what the estimates were multiplied, by what the provider had counted of earlier prompts when the conversation
    began; None where its tokens are counted and not estimated."""
