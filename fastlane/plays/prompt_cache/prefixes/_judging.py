"""How many tokens of a prompt should have come from the cache, and what is to blame where fewer did."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fastlane.records.prompt import Drift, DriftKind

from ._diagnostics import meaning

if TYPE_CHECKING:
    from ._departure import Departure

# Where nobody knows how large the blocks are: as OpenAI's (https://developers.openai.com/cookbook/examples/prompt_caching_201).
_USUAL_BLOCK = 128
# Fewer cached tokens than expected mean something where more than this is missing: by so much, estimates are wrong.
_SLACK_BLOCKS = 2
_SLACK_SHARE = 0.1
# Where the beginning was never counted by itself: tools and prose have as many tokens per character within this.
_LOOSE_SHARE = 0.25


class CacheRules(NamedTuple):
    """How a provider keeps the beginnings of prompts, by its facts; None where nobody knows."""

    automatic: bool | None = None
    """Whether it does so without being asked to."""
    minimum_tokens: int | None = None
    """Tokens from which on a beginning is kept."""
    block_tokens: int | None = None
    """What is read from the cache is a whole multiple of so many tokens."""
    lifetime_s: float | None = None
    """Seconds that a beginning is kept after its last use."""

    def kept(self, tokens: int) -> int:
        """Of so many tokens that were sent before, how many can be read from the cache."""
        if self.block_tokens:
            tokens -= tokens % self.block_tokens
        return 0 if self.minimum_tokens and tokens < self.minimum_tokens else tokens

    def outlived(self, used_ns: int, now_ns: int) -> bool:
        """Whether a beginning that was last used then has expired; False where nobody knows when it does."""
        return self.lifetime_s is not None and now_ns - used_ns > self.lifetime_s * 1e9


class Scale(NamedTuple):
    """How many tokens the first characters of one prompt are."""

    size: int
    """Characters of the whole prompt."""
    tokens: int
    """And its tokens."""
    known_size: int = 0
    """Characters of a beginning that was counted by itself, as a prompt of its own."""
    known_tokens: int = 0

    def at(self, size: int) -> int:
        """Tokens of so many characters from the beginning."""
        if self.known_size and size <= self.known_size:
            return round(self.known_tokens * size / self.known_size)
        rest = self.size - self.known_size
        if rest <= 0:
            return self.tokens
        return round(self.known_tokens + (self.tokens - self.known_tokens) * min(1.0, (size - self.known_size) / rest))


class Prospect(NamedTuple):
    """What was known of a prompt when it was sent."""

    size: int = 0
    """Characters of the whole prompt."""
    known_size: int = 0
    """Characters of its beginning that were sent before."""
    fresh_size: int = 0
    """Of these, the ones whose last use is not too long ago."""
    departure: Departure | None = None
    before: str | None = None
    """The text around the difference in the earlier prompt, where texts are kept."""
    after: str | None = None


class Judgement(NamedTuple):
    """What is to be said of one prompt."""

    reusable_tokens: int
    expected_tokens: int | None
    drift: Drift | None


def judge(
    prospect: Prospect, scale: Scale, rules: CacheRules, *, keeps: bool, cached: int | None, reason: str | None
) -> Judgement:
    """Judge one answered call. `keeps`: whether the provider is known to keep this prompt; `reason`: its own word."""
    departure = prospect.departure
    fresh = scale.at(prospect.fresh_size)
    reusable = fresh if departure is None or departure.elsewhere else max(fresh, scale.at(departure.before_size))
    expected = rules.kept(reusable) if keeps else None
    drift = None
    if departure is not None:
        drift = _broken(prospect, departure, scale, rules, reusable, cached)
    if drift is None and departure is None and keeps:
        share = _SLACK_SHARE if prospect.known_size == scale.known_size else _LOOSE_SHARE
        drift = _lost(scale.at(prospect.known_size), fresh, rules, cached, share)
    return Judgement(reusable, expected, _with_reason(drift, reason, reusable, scale, rules, cached))


def _broken(
    prospect: Prospect, departure: Departure, scale: Scale, rules: CacheRules, reusable: int, cached: int | None
) -> Drift | None:
    """The drift that the difference between two prompts is, unless the provider has read beyond it."""
    offset = scale.at(departure.before_size)
    unbroken = scale.at(departure.before_size + departure.lost_size)
    lost = unbroken - max(reusable, offset)
    broken, whole = rules.kept(max(reusable, offset)), rules.kept(unbroken)
    if lost <= 0:
        return None
    if departure.elsewhere and broken and lost <= _slack(unbroken, rules):
        # Where two models are asked the same, turn by turn, each keeps all but what the other was asked just now.
        return None
    if (
        cached
        and cached > max(reusable, offset) + (rules.block_tokens or _USUAL_BLOCK)
        and cached >= whole - min(_slack(whole, rules), (whole - rules.kept(reusable)) / 2)
    ):
        # It has read beyond the difference: as much as there was, or what another prompt had left there.
        return None
    return Drift(
        kind=departure.kind,
        path=departure.path,
        character=departure.character,
        token_offset=offset,
        tokens_lost=lost,
        before=prospect.before,
        after=prospect.after,
    )


def _lost(known: int, fresh: int, rules: CacheRules, cached: int | None, share: float) -> Drift | None:
    """The drift of an unbroken beginning that was not read: expired, or given up early."""
    should = rules.kept(known)
    if cached is None:
        # Nobody says what was read. That the time is over is known all the same.
        found, is_old = rules.kept(fresh), True
    else:
        found, is_old = cached, rules.kept(fresh) < should
    if should - found <= _slack(should, rules, share):
        return None
    kind: DriftKind = "expired" if is_old else "evicted"
    return Drift(kind=kind, path=None, token_offset=found, tokens_lost=should - found)


def _slack(tokens: int, rules: CacheRules, share: float = _SLACK_SHARE) -> float:
    return max(_SLACK_BLOCKS * (rules.block_tokens or _USUAL_BLOCK), share * tokens)


def _with_reason(
    drift: Drift | None, reason: str | None, reusable: int, scale: Scale, rules: CacheRules, cached: int | None
) -> Drift | None:
    """The drift with the provider's own word for it, which wins where it says something else."""
    if reason is None:
        return drift
    said = meaning(reason)
    kind: DriftKind
    path: str | None
    if drift is None:
        whole = rules.kept(scale.tokens)
        # It speaks of the earlier response that it was asked to compare with: the prompt may be known of another.
        if said is None or (cached and cached >= whole - _slack(whole, rules)):
            return None
        kind, path, offset, lost = said.kind, said.path, cached or 0, max(0, reusable - (cached or 0))
        return Drift(
            kind=kind, path=path, token_offset=min(offset, scale.tokens), tokens_lost=lost, provider_reason=reason
        )
    kind, path, character = drift.kind, drift.path, drift.character
    if said is not None and said.kind != kind and not (path is not None and path.startswith(said.beginnings)):
        kind, character = said.kind, None
        path = path if said.path is None else said.path
    return Drift(
        kind=kind,
        path=path,
        character=character,
        token_offset=drift.token_offset,
        tokens_lost=drift.tokens_lost,
        provider_reason=reason,
        before=drift.before,
        after=drift.after,
    )
