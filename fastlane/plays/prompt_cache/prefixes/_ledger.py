"""The ledger of prompts: what each call should find in the provider's cache, and what broke it where it does not."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nlargest
from typing import TYPE_CHECKING, Any

import orjson

from fastlane._fork import new_lock, starts_over
from fastlane.knowledge.token_ratios import TokenRatios
from fastlane.records.prompt import PromptCacheRecord

from ..section import PromptCacheSection
from ._departure import Departure, Seen, departure, seen
from ._excerpts import excerpts
from ._families import Families
from ._judging import CacheRules, Prospect, Scale, judge
from ._lines import KEY, Attributes, Line, Lines, Uses, attributes_of, chained, lies_elsewhere
from ._outline import Outline, outline

if TYPE_CHECKING:
    from fastlane.records.usage import Usage

    from ._report import PromptCacheReport

_MOST_LINES = 1_000
_MOST_SEGMENTS = 24_000
_KEPT_BYTES = 8 * 1024 * 1024
_MOST_USES = 24_000
# Where nothing was counted yet: the rule of thumb of
# https://help.openai.com/en/articles/4936856-what-are-tokens-and-how-to-count-them (a token is about 4 characters).
_TOKENS_PER_CHARACTER = 0.25
# Earlier prompts that are looked at when one departs, and families of which the latest is.
_MOST_SHARING = 16
_MOST_RECENT = 8


class Sighting:
    """One call's prompt, as the ledger saw it before it was sent. Holds no text but where texts are kept."""

    __slots__ = (
        "_attributes", "_base", "_chain", "_elsewhere", "_family_chain", "_head", "_ledger", "_outline", "_prospect",
        "_record", "_rules", "_seed", "_traces", "family", "key", "shards",
    )  # fmt: skip

    def __init__(
        self,
        ledger: Ledger,
        attributes: Attributes,
        seed: int,
        outline: Outline,
        chain: tuple[int, ...],
        head: int,
        family: str,
        base: Seen | None,
        prospect: Prospect,
        traces: dict[int, bytes],
        rules: CacheRules,
        key: str | None,
        shards: int,
        elsewhere: bool,
    ) -> None:
        self._ledger = ledger
        self._attributes = attributes
        self._seed = seed
        self._outline = outline
        self._chain = chain
        self._head = head
        self.family = family
        """Tells prompts of one kind from others."""
        self._base = base
        self._prospect = prospect
        self._traces = traces
        self._rules = rules
        self.key = key
        """The cache key that is sent."""
        self.shards = shards
        """Among how many keys the family's calls are spread."""
        self._elsewhere = elsewhere
        self._record: PromptCacheRecord | None = None
        self._family_chain: tuple[int, ...] | None = None

    def sent_without_key(self) -> None:
        """Take note that the prompt was sent without its cache key after all: the provider refused the field."""
        if self.key is None:
            return
        self.key = None
        attributes = self._attributes
        kept = tuple(pair for pair in attributes.parameters if pair[0] != KEY)
        self._attributes = attributes._replace(parameters=kept)
        self._seed = hash(self._attributes)
        self._chain = chained(self._seed, self._outline.digests)
        self._base = None
        self._prospect = Prospect(self._prospect.size)

    def family_chain(self) -> tuple[int, ...]:
        """The chain of the prompt as if the family had one cache key and no shards."""
        if self._family_chain is None:
            key = _without_shard(self.key, self.shards)
            if key == self.key:
                self._family_chain = self._chain
            else:
                attributes, base = self._attributes, self._base
                parameters = tuple((name, key if name == KEY else value) for name, value in attributes.parameters)
                known = base.line.family_chain if base is not None and base.line.chain is base.chain else ()
                seed = hash(attributes._replace(parameters=parameters))
                self._family_chain = chained(seed, self._outline.digests, known)
        return self._family_chain

    def settle(
        self, usage: Usage, *, answered: bool, now_ns: int, provider_reason: str | None = None
    ) -> PromptCacheRecord:
        """The call is over, at `now_ns` (monotonic nanoseconds); say what its prompt was to the cache.

        Only a prompt that was answered is in the provider's cache from now on. `provider_reason` is the provider's own
        word (see `provider_reason`). A sighting is settled once; later calls return the same record.
        """
        return self._ledger._settled(self, usage, answered, now_ns, provider_reason)


class Ledger:
    """What was sent of late: thread-safe, bounded, and with no clock of its own.

    Beyond `most_lines` conversations, `most_segments` messages and tools in them, or `kept_bytes` of JSON (8 MiB), the
    conversations that were not used for longest are forgotten. With 0 `kept_bytes` no text is kept: of what broke a
    prompt only the place of the message or tool is known. With `quotes` a drift shows the texts around a difference.
    """

    def __init__(
        self,
        *,
        quotes: bool = False,
        kept_bytes: int = _KEPT_BYTES,
        most_lines: int = _MOST_LINES,
        most_segments: int = _MOST_SEGMENTS,
    ) -> None:
        self.quotes = quotes
        """Whether a drift quotes the texts around a difference."""
        self.kept_bytes = kept_bytes
        # Held for microseconds: digests, sketches and differences are made outside.
        self._lock = new_lock()
        starts_over(self)
        self._lines = Lines(
            most_lines=most_lines, most_segments=most_segments, most_characters=kept_bytes or _KEPT_BYTES
        )
        self._uses = Uses(_MOST_USES)
        self._families = Families()
        # What a count can be at all: images are many tokens of few characters.
        self._ratios = TokenRatios("tokens per character", least=0.005, most=20.0)
        self._keeping: dict[str, None] = {}

    def sight(
        self,
        *,
        origin: str,
        model: str | None,
        endpoint: str,
        body: Mapping[str, Any],
        rules: CacheRules,
        now_ns: int,
        key: str | None = None,
        shards: int = 1,
        volatile: int = 0,
        outlined: tuple[Outline, list[Any]] | None = None,
    ) -> Sighting:
        """Look at a prompt that is about to be sent, at `now_ns` (monotonic nanoseconds).

        `body` is what is sent; nothing of it is kept or changed. `key` is the cache key, where one is sent, and
        `shards` among how many keys such calls are spread. `volatile` is how many messages at the end were declared to
        be for this call alone: no later prompt is expected to have them. `outlined` is what `outline` gives for this
        body, where it was asked already.
        """
        new, values = outline(endpoint, body) if outlined is None else outlined
        size = sum(new.sizes)
        if volatile:
            new, values = new.without_last(volatile), values[: max(0, len(values) - volatile)]
        attributes = attributes_of(origin, endpoint, model, body, key)
        seed = hash(attributes)
        elsewhere = lies_elsewhere(body)
        base: Seen | None = None
        candidates: list[tuple[Seen, int]] = []
        recent: list[Seen] = []
        with self._lock:
            line = None if elsewhere else self._lines.continued(seed, new.digests)
            chain = chained(seed, new.digests, () if line is None else line.chain)
            if line is None and not elsewhere:
                line = self._lines.longest(chain)
            if line is not None:
                base = seen(line)
            known = 0 if elsewhere else self._known(chain)
            if not elsewhere and known < len(chain) and self._may_depart(line, new, known):
                candidates = self._sharing(new)
                if known < new.leading:
                    recent = self._recent(attributes)
            fresh = self._fresh(chain, known, rules, now_ns)
            head = hash((origin, model, _without_shard(key, shards), new.digests[: new.leading]))
            family = base.family if base is not None else self._families.named(head)
        departed: Departure | None = None
        if candidates or recent:
            # What has expired is not lost by a difference.
            candidates = [pair for pair in candidates if not rules.outlived(pair[0].used_ns, now_ns)]
            recent = [one for one in recent if not rules.outlived(one.used_ns, now_ns)]
            departed = departure(new, values, attributes, known, candidates, recent, self._kept)
            if departed is not None and departed.related:
                family = departed.seen.family
        known_size = sum(new.sizes[:known])
        fresh_size = known_size if fresh == known else sum(new.sizes[:fresh])
        before = after = None
        if departed is not None and self.quotes:
            before, after = excerpts(departed, new, values, self._kept)
        return Sighting(
            ledger=self,
            attributes=attributes,
            seed=seed,
            outline=new,
            chain=chain,
            head=head,
            family=family,
            base=base,
            prospect=Prospect(size, known_size, fresh_size, departed, before, after),
            traces={} if elsewhere else self._traces(new, values, 0 if base is None else len(base.chain)),
            rules=rules,
            key=key,
            shards=shards,
            elsewhere=elsewhere,
        )

    def report(self) -> PromptCacheReport:
        """Return what was read from providers' caches so far, and why not more."""
        with self._lock:
            return self._families.report()

    def clear(self) -> None:
        """Forget all prompts and all counts."""
        with self._lock:
            self._forget()

    def begin_in_child(self) -> None:
        """See `StartsOver`: what another thread of the parent was changing is half changed."""
        if self._lock.locked():
            self._forget()

    def _forget(self) -> None:
        self._lines.clear()
        self._uses = Uses(_MOST_USES)
        self._families.clear()
        self._ratios.clear()
        self._keeping.clear()

    def _may_depart(self, line: Line | None, new: Outline, known: int) -> bool:
        """Whether a prompt may depart from any; `line` is what it begins with all of, and mostly goes on from."""
        lines = self._lines
        most = line is not None and 2 * len(line.chain) >= len(new.digests)
        if line is not None and most and lines.is_latest(line, line.outline.digests[-1]):
            return False
        return known < new.leading or lines.knows_any(new.digests[new.leading :])

    def _known(self, chain: tuple[int, ...]) -> int:
        """Segments of the longest beginning that was sent before."""
        get = self._uses.get
        return next((count for count in range(len(chain), 0, -1) if get(chain[count - 1]) is not None), 0)

    def _fresh(self, chain: tuple[int, ...], known: int, rules: CacheRules, now_ns: int) -> int:
        """Segments of the longest of these whose last use is not too long ago."""
        for count in range(known, 0, -1):
            used_ns = self._uses.get(chain[count - 1])
            if used_ns is not None and not rules.outlived(used_ns, now_ns):
                return count
        return 0

    def _sharing(self, new: Outline) -> list[tuple[Seen, int]]:
        shared = self._lines.sharing(new)
        best = nlargest(_MOST_SHARING, shared.items(), key=lambda pair: (pair[1], pair[0].used_ns))
        return [(seen(line), size) for line, size in best]

    def _recent(self, attributes: Attributes) -> list[Seen]:
        found: list[Seen] = []
        for line in self._families.lines():
            if line.attributes[:3] == attributes[:3]:
                found.append(seen(line))
                if len(found) >= _MOST_RECENT:
                    break
        return found

    def _kept(self, one: int) -> Any:
        """The value of a segment of an earlier prompt; None where it is not kept."""
        text = self._lines.text(one)
        return None if text is None else orjson.loads(text)

    def _traces(self, new: Outline, values: list[Any], start: int) -> dict[int, bytes]:
        """The segments that are not known yet, as JSON."""
        if not self.kept_bytes:
            return {}
        lines = self._lines
        return {
            one: text
            for one, value in zip(new.digests[start:], values[start:], strict=True)
            if not lines.knows(one) and (text := _json(value)) is not None
        }

    def _settled(
        self, sighting: Sighting, usage: Usage, answered: bool, now_ns: int, reason: str | None
    ) -> PromptCacheRecord:
        with self._lock:
            if sighting._record is None:
                sighting._record = self._recorded(sighting, usage, answered, now_ns, reason)
                if answered:
                    line = None if sighting._elsewhere else self._entered(sighting, usage, now_ns)
                    self._families.count(sighting.family, sighting._head, sighting._attributes, line, sighting._record)
            return sighting._record

    def _recorded(
        self, sighting: Sighting, usage: Usage, answered: bool, now_ns: int, reason: str | None
    ) -> PromptCacheRecord:
        attributes, base = sighting._attributes, sighting._base
        origin, model = attributes.origin, attributes.model
        prospect = sighting._prospect
        size = prospect.size
        cached = usage.cached_tokens
        if cached:
            self._keeping[origin] = None
        tokens = usage.input_tokens
        if tokens is None:
            tokens = round(size * (self._ratios.of((origin, model)) or _TOKENS_PER_CHARACTER))
        elif answered and not sighting._elsewhere:
            self._ratios.learn((origin, model), size, tokens)
        scale = Scale(size, tokens)
        if base is not None and base.tokens is not None and base.tokens <= tokens:
            scale = Scale(size, tokens, base.size, base.tokens)
        rules = sighting._rules
        if cached and sighting.shards > 1 and cached > scale.at(prospect.fresh_size) and not sighting._elsewhere:
            prospect = self._over_all_shards(sighting, prospect, scale, cached, now_ns)
        keeps = bool(rules.automatic) or sighting.key is not None or origin in self._keeping
        judged = judge(
            prospect,
            scale,
            rules,
            keeps=keeps and answered and not sighting._elsewhere,
            cached=cached,
            reason=reason,
        )
        return PromptCacheSection(
            family=sighting.family,
            prompt_tokens=tokens,
            reusable_tokens=judged.reusable_tokens,
            expected_tokens=judged.expected_tokens,
            cached_tokens=cached,
            drift=judged.drift if answered else None,
            key=sighting.key,
            shards=sighting.shards,
        )

    def _over_all_shards(
        self, sighting: Sighting, prospect: Prospect, scale: Scale, cached: int, now_ns: int
    ) -> Prospect:
        """Count what was sent under the family's other keys too, where the provider has read that.

        A provider may keep the prompts of each key on another machine, or all of them in one cache. Whichever of both
        is nearer to what it has read, it did for this call.
        """
        rules, sizes, chain = sighting._rules, sighting._outline.sizes, sighting.family_chain()
        known = self._known(chain)
        fresh = sum(sizes[: self._fresh(chain, known, rules, now_ns)])
        if 2 * cached <= scale.at(prospect.fresh_size) + scale.at(fresh):
            return prospect
        return prospect._replace(known_size=sum(sizes[:known]), fresh_size=fresh)

    def _entered(self, sighting: Sighting, usage: Usage, now_ns: int) -> Line | None:
        """The prompt is in the provider's cache from now on."""
        chain, base = sighting._chain, sighting._base
        if not chain:
            return None
        self._uses.use(chain, now_ns)
        if sighting.shards > 1:
            self._uses.use(sighting.family_chain(), now_ns)
        lines = self._lines
        line = lines.ending(chain[-1])
        if line is not None:
            lines.touch(line)
        # A line that went on meanwhile has another end: this prompt is a branch of it.
        elif base is not None and base.line.chain is base.chain:
            line = base.line
            lines.extend(line, sighting._outline, chain, sighting._traces)
        else:
            line = Line(sighting._attributes, sighting._seed, sighting._outline, chain, sighting.family, now_ns)
            lines.add(line, sighting._traces)
        line.size = sighting._prospect.size
        line.tokens = usage.input_tokens
        if sighting.shards > 1:
            line.family_chain = sighting.family_chain()
        line.used_ns = max(line.used_ns, now_ns)
        sighting._traces = {}
        return line


def _json(value: Any) -> bytes | None:
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return None


def _without_shard(key: str | None, shards: int) -> str | None:
    """The key of all of a family's calls, where the calls are spread over several: see `Governor.shard`."""
    if key is None or shards == 1:
        return key
    name, _, number = key.rpartition("-")
    # A key of the application's own may end in a number too, which is a shard's where there are as many.
    return name if name and number.isdecimal() and number[0] != "0" and int(number) < shards else key
