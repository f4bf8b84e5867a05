"""The prompts that a client has sent: how much of a new one its provider's cache should hold.

All of it is worked out from the JSON of the request, in the order in which providers read it: the head (tools, formats,
instructions), then the messages. How far a new prompt begins like an earlier one is found by comparing the bytes.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fastlane._fork import new_lock, starts_over
from fastlane.knowledge.table import Table
from fastlane.protocol.endpoints import PROMPT_FIELDS
from fastlane.protocol.prompt_marks import LEADING_ROLES

from .drift import HEAD_PARTS, common_length, find_drift, json_of
from .key import KEY_FIELD, stable_key
from .report import FamilyReport, PromptCacheReport
from .section import PromptCacheSection

if TYPE_CHECKING:
    from fastlane.engine.call import Call
    from fastlane.records.plays import PromptCacheRecord
    from fastlane.records.usage import Usage

_MAX_LINES, _MAX_ENDS = 1_000, 64
# Earlier prompts that one is compared with to explain a drift.
_MAX_EARLIER = 256
# Neighbours in the order of their texts that are looked at for one that has not expired.
_MAX_NEIGHBOURS = 8
_MAX_FAMILIES, _OTHERS = 256, "others"
# Calls are added to the report so many at a time.
_MAX_UNCOUNTED = 256
_MAX_HEADS, _MAX_STABLE_KEYS = 64, 8_192
# Records whose drift a report shows.
_MAX_EXPLAINED = 1_000
_BRACKET: Final = ord("[")
# Beyond the model, what providers keep caches apart by, as they name it: OpenAI's diagnostics (the values of
# `PromptCacheDiagnosticsCacheMiss.reason`), vLLM's `cache_salt`, SGLang's `extra_key`, Fireworks' isolation key.
_PARAMETERS: Final = (
    "reasoning_effort", "verbosity", "service_tier", "cache_salt", "extra_key", "prompt_cache_isolation_key",
    "reasoning.effort", "text.verbosity",
)  # fmt: skip
# With one of these, most of the prompt is the provider's own record of the conversation.
_STORED: Final = ("previous_response_id", "conversation")


class CacheRules(NamedTuple):
    """How a provider keeps the beginnings of prompts, by its facts; None for what is not known."""

    automatic: bool | None = None
    """Whether it does so without being asked to."""
    minimum_tokens: int | None = None
    """Tokens from which on a beginning is kept."""
    block_tokens: int | None = None
    """What is read from the cache is a whole multiple of so many tokens."""
    lifetime_ns: float = math.inf
    """Nanoseconds that a beginning is kept after its last use."""
    key_field: str | None = None
    """The field of the request that takes a cache key."""
    requests_per_key_per_minute: float | None = None

    def kept(self, tokens: int) -> int:
        """Return how many of so many tokens that were sent before can be read from the cache."""
        if self.block_tokens:
            tokens -= tokens % self.block_tokens
        return 0 if self.minimum_tokens and tokens < self.minimum_tokens else tokens


class UpstreamCache:
    """What was learned of the cache of one model at one origin."""

    __slots__ = ("keeps", "tokens_per_byte")

    def __init__(self) -> None:
        self.keeps = False
        """Whether anything was ever read from it."""
        # The rule of thumb of https://help.openai.com/en/articles/4936856-what-are-tokens-and-how-to-count-them.
        self.tokens_per_byte = 0.25


class PromptHead:
    """A request without its messages."""

    def __init__(self, call: Call, items_name: str, cache: UpstreamCache) -> None:
        body = call.body
        self.items_name = items_name
        self.facts = call.facts
        self.rules = rules_of(call.facts)
        self.cache = cache
        self.origin = call.origin
        self.address = (call.origin, call.endpoint)
        self.model = call.model
        self.parameters: dict[str, Any] = {"model": call.model}
        """What the provider keeps caches apart by, without the cache key."""
        for path in _PARAMETERS:
            value = _at(body, path)
            if value is not None:
                self.parameters[path] = value
        self.seed = hash((call.origin, call.endpoint, json_of(self.parameters)))
        parts = {path: _at(body, path) for path in HEAD_PARTS}
        self.text = json_of({path: value for path, value in parts.items() if value is not None and value != []})
        """What is read before the messages, as JSON."""
        self.number = hash((self.seed, self.text))
        is_template = isinstance(body.get("prompt"), Mapping)
        self.is_stored = is_template or any(body.get(field) is not None for field in _STORED)
        """Whether most of the prompt is not in the request."""
        before, _, after = json_of({**body, items_name: [0]}).partition(b'"%b":[0]' % items_name.encode())
        self.front = before + b'"%b":' % items_name.encode()
        self.tail = b"]" + after
        """The JSON of the request before and after the messages."""

    def is_of(self, written: bytes) -> bool:
        """Return whether a request, as JSON, has this head, and a list of messages."""
        return written.endswith(self.tail) and written.startswith(self.front) and written[len(self.front)] == _BRACKET


class SentPrompt:
    """One call's prompt. Once it is settled, it has no text any more."""

    head: PromptHead
    text: bytes
    """The head and the messages as JSON, without the bracket at the end."""
    size: int
    """Its bytes."""
    count: int
    """The number of messages."""
    opening: int
    """A hash of the head, of leading system and developer messages, and of the next one."""
    stable_key: str
    """The cache key of all prompts with these stable parts."""
    family: str
    """Tells prompts of one kind from others."""
    key: str | None
    """The cache key that is sent."""
    base_key: str | None
    """The key of the family, of which `key` is one of so many `shards`."""
    shards: int = 1
    key_field: str | None = None
    """The field of the key, if fastlane has added it."""
    sent_ns: int
    answered_before: int
    """How many calls were answered before it was sent."""
    known: KnownBeginning
    """What was sent before."""
    scale: TokenScale
    keeps: bool
    """Whether the provider is known to keep the prompt."""
    cached: int | None
    """Tokens that it has read from its cache."""
    reason: str | None
    """Its own word for why it has read no more."""
    line: PromptLine | None = None
    """The line that the prompt has become part of."""
    record: PromptCacheRecord | None = None


class PromptLine:
    """One conversation (or a single prompt) as it was last sent and answered."""

    __slots__ = ("ends", "group", "head", "key", "opening", "segments", "text", "tokens", "used_ns")

    def __init__(self, prompt: SentPrompt) -> None:
        self.head = prompt.head
        self.key = prompt.key
        self.opening = hash((prompt.opening, prompt.key))
        self.group = hash((prompt.head.seed, prompt.base_key))
        """The provider, the model and the key of the family."""
        self.text: bytes = b""
        """Empty once it is forgotten."""
        self.tokens: int | None = None
        self.used_ns = 0
        self.ends: list[tuple[int, int, int]] = []
        """For each call: how many calls were answered before it, the number of messages, and its time."""
        self.segments: Any = None
        """What `drift` has read of the text."""


class KnownBeginning(NamedTuple):
    """What of a prompt was sent before."""

    size: int = 0
    """Bytes that an earlier prompt had."""
    fresh_size: int = 0
    """Of these, the ones that have not expired."""
    line: PromptLine | None = None
    """The earlier prompt with the longest common beginning."""
    line_size: int = 0
    """Its bytes."""
    tokens: int | None = None
    """Its tokens."""


NOTHING_KNOWN: Final = KnownBeginning()
_text_of = attrgetter("text")


class TokenScale(NamedTuple):
    """How many tokens the first bytes of one prompt are."""

    size: int
    """Bytes of the whole prompt."""
    tokens: int
    """And its tokens."""
    known_size: int = 0
    """Bytes of a beginning that was counted by itself, as a prompt of its own."""
    known_tokens: int = 0

    def at(self, size: int) -> int:
        """Return the tokens of so many bytes from the beginning."""
        if self.known_size and size <= self.known_size:
            return round(self.known_tokens * size / self.known_size)
        rest = self.size - self.known_size
        if rest <= 0:
            return self.tokens
        return round(self.known_tokens + (self.tokens - self.known_tokens) * min(1.0, (size - self.known_size) / rest))


class PromptHistory:
    """The prompts that were sent of late, and what was read of them. Threads may share it.

    It holds at most 1,000 conversations and `kept_bytes` of their JSON; those that were not used for longest go first.
    """

    def __init__(self, *, kept_bytes: int, quote: bool = False) -> None:
        self.kept_bytes = kept_bytes
        self.quote = quote
        """Whether a drift shows the texts around a difference."""
        self.lock = new_lock()
        self._upstreams: Table[tuple[str, str | None], UpstreamCache] = Table("prompt caches", max_entries=256)
        self._forget()
        starts_over(self)

    def _forget(self) -> None:
        self._heads: dict[Any, PromptHead] = {}
        self._stable_keys: dict[int, str] = {}
        self.lines: OrderedDict[PromptLine, None] = OrderedDict()
        """In the order of their last use."""
        self._openings: dict[int, PromptLine] = {}
        self._sorted: dict[int, list[PromptLine]] = {}
        """The lines of each group in the order of their texts: the one with the longest common beginning is next to
        a text."""
        self._grown: set[int] = set()
        """Those of them whose order may have changed."""
        self._text_bytes = 0
        self._answered = 0
        self._uncounted: list[tuple[PromptHead, PromptCacheRecord]] = []
        self._families: dict[str, FamilyReport] = {}
        """In the order of their last use."""
        self._explained: deque[PromptCacheRecord] = deque(maxlen=_MAX_EXPLAINED)
        """Records that may have a drift."""

    def clear(self) -> None:
        """Forget all prompts and counts."""
        with self.lock:
            self._forget()
        self._upstreams.clear()

    def begin_in_child(self) -> None:
        """See `StartsOver`: what another thread of the parent was changing is half changed."""
        if self.lock.locked():
            self._forget()

    def read(self, call: Call, volatile: int = 0) -> SentPrompt:
        """Read the prompt of a call, without so many volatile messages at its end: no later prompt has them."""
        body, endpoint, placements = call.body, call.endpoint, call.placements
        name = PROMPT_FIELDS[endpoint]
        items = body.get(name)
        written = b"" if call.changes or volatile else call.written or b""
        like = (call.origin, endpoint, body.get("model"), *body)
        head = self._heads.get(like)
        is_known = head is not None and head.facts is call.facts and head.is_of(written)
        if head is None or not is_known:
            head = PromptHead(call, name, self._upstreams.fetch((call.origin, call.model), UpstreamCache))
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            self._heads[like] = head
            is_known = head.is_of(written)
        beginning: list[Any] = [head.number]
        count = 1
        if type(items) is list:
            items = items[: len(items) - volatile] if volatile else items
            count = len(items)
            for at, item in enumerate(items):
                content = item.get("content") if type(item) is dict else item
                beginning.append(content if type(content) is str else json_of(content))
                if placements is not None:
                    if placements[at] != "stable":
                        break
                elif type(item) is not dict or item.get("role") not in LEADING_ROLES:
                    break
        else:
            beginning.append(items if type(items) is str else json_of(items))
        prompt = SentPrompt()
        prompt.head, prompt.count, prompt.sent_ns = head, count, call.issued_ns
        if is_known:
            prompt.text = b"".join((head.text, memoryview(written)[len(head.front) : -len(head.tail)]))
        else:
            prompt.text = head.text if items is None else head.text + json_of(items)[:-1]
        prompt.size = len(prompt.text)
        prompt.opening = hash(tuple(beginning))
        leading = hash(tuple(beginning[:-1]))
        stable = self._stable_keys.get(leading)
        if stable is None:
            if len(self._stable_keys) >= _MAX_STABLE_KEYS:
                self._stable_keys.clear()
            stable = self._stable_keys[leading] = stable_key(endpoint, body, placements)
        prompt.stable_key = stable
        given = body.get(head.rules.key_field or KEY_FIELD) or body.get(KEY_FIELD)
        prompt.key = prompt.base_key = given if isinstance(given, str) else None
        prompt.family = f"{hash((call.origin, stable, prompt.key)) & 0xFFFF_FFFF_FFFF_FFFF:016x}"
        return prompt

    def expect(self, prompt: SentPrompt) -> None:
        """Find out how much of a prompt that is about to be sent was sent before."""
        prompt.answered_before = self._answered
        prompt.known = NOTHING_KNOWN
        if prompt.head.is_stored:
            return
        with self.lock:
            line = self._openings.get(hash((prompt.opening, prompt.key)))
            used_ns = prompt.sent_ns - prompt.head.rules.lifetime_ns
            if line is not None and line.used_ns >= used_ns and prompt.text.startswith(line.text):
                # A conversation that goes on, as most do.
                size = len(line.text)
                prompt.known = KnownBeginning(size, size, line, size, line.tokens)
            else:
                prompt.known = self._known(prompt, used_ns)

    def _known(self, prompt: SentPrompt, used_ns: float, *, any_key: bool = False) -> KnownBeginning:
        """Return what of a prompt was sent before under its key, or under any key of its family.

        What was last used before `used_ns` has expired.
        """
        group = hash((prompt.head.seed, prompt.base_key))
        lines, known = self._sorted.get(group, []), NOTHING_KNOWN
        if group in self._grown:
            self._grown.discard(group)
            lines.sort(key=_text_of)
        at = bisect_left(lines, prompt.text, key=_text_of)
        for nearest in (lines[at:], lines[:at][::-1]):
            alike = (line for line in nearest if any_key or line.key == prompt.key)
            for line in islice(alike, _MAX_NEIGHBOURS):
                size = common_length(prompt.text, line.text)
                is_fresh = line.used_ns >= used_ns
                fresh_size = max(known.fresh_size, size) if is_fresh else known.fresh_size
                if size > known.size:
                    known = KnownBeginning(size, fresh_size, line, len(line.text), line.tokens)
                elif fresh_size > known.fresh_size:
                    known = known._replace(fresh_size=fresh_size)
                if is_fresh:
                    break
        return known

    def forget_key(self, prompt: SentPrompt) -> None:
        """Take note that the provider has refused the cache key, and that the prompt was sent without it."""
        prompt.key = prompt.base_key = None
        prompt.shards, prompt.known = 1, NOTHING_KNOWN

    def settle(
        self, prompt: SentPrompt, usage: Usage, *, answered: bool, now_ns: int, reason: str | None = None
    ) -> PromptCacheRecord:
        """Record what was read of a prompt whose call is over, at `now_ns`. Once settled, it returns the same record.

        Only a prompt that was `answered` is in the provider's cache from now on. `reason` is the provider's own word
        for why it has read no more.
        """
        if prompt.record is not None:
            return prompt.record
        head, known, size = prompt.head, prompt.known, prompt.size
        rules, cached, tokens = head.rules, usage.cached_tokens, usage.input_tokens
        if cached:
            head.cache.keeps = True
        if tokens is None:
            tokens = round(size * head.cache.tokens_per_byte)
        elif answered and size and not head.is_stored:
            head.cache.tokens_per_byte = tokens / size
        scale = _scale(size, tokens, known)
        reusable = scale.at(known.fresh_size) if known.fresh_size else 0
        if cached and prompt.shards > 1 and cached > reusable:
            # A provider may keep the prompts of each key on another machine, or all of them in one cache. Whichever is
            # nearer to what it has read, it did for this call.
            with self.lock:
                anywhere = self._known(prompt, prompt.sent_ns - rules.lifetime_ns, any_key=True)
            wider = _scale(size, tokens, anywhere)
            if 2 * cached > reusable + wider.at(anywhere.fresh_size):
                known, scale = anywhere, wider
                reusable = scale.at(known.fresh_size)
        keeps = bool(rules.automatic or prompt.key is not None or head.cache.keeps)
        keeps = keeps and answered and not head.is_stored and self.kept_bytes > 0
        expected = rules.kept(reusable) if keeps else None
        goes_on = 0 < known.size == known.fresh_size and known.size in (size, known.line_size)
        is_lost = reason is not None or (cached is not None and expected is not None and cached < expected)
        # Of less than a block nothing can have been kept.
        may_depart = not goes_on and tokens - reusable >= (rules.block_tokens or 1)
        departs = answered and not head.is_stored and (is_lost or may_depart)
        prompt.known, prompt.scale, prompt.keeps, prompt.cached, prompt.reason = known, scale, keeps, cached, reason
        record = prompt.record = PromptCacheSection(
            family=prompt.family,
            prompt_tokens=tokens,
            reusable_tokens=reusable,
            expected_tokens=expected,
            cached_tokens=cached,
            explanation=partial(find_drift, self, prompt) if departs else None,
            key=prompt.key,
            shards=prompt.shards,
        )
        if answered:
            with self.lock:
                self._answered += 1
                self._uncounted.append((head, record))
                if len(self._uncounted) >= _MAX_UNCOUNTED:
                    self._count()
                if departs:
                    self._explained.append(record)
                if self.kept_bytes and not head.is_stored and size > len(head.text):
                    prompt.line = self._enter(prompt, usage.input_tokens, now_ns)
        prompt.text = b""
        return record

    def _enter(self, prompt: SentPrompt, tokens: int | None, now_ns: int) -> PromptLine:
        """Remember the prompt of an answered call: it is in the provider's cache from now on."""
        text, known = prompt.text, prompt.known
        line = known.line
        # A line that has grown since then may be another branch of the conversation.
        if line is None or line not in self.lines or known.size not in (prompt.size, len(line.text)):
            line = self._openings.get(hash((prompt.opening, prompt.key)))
            if line is None or not (text.startswith(line.text) or line.text.startswith(text)):
                line = PromptLine(prompt)
        if len(text) >= len(line.text):
            self._text_bytes += len(text) - len(line.text)
            is_new = not line.text
            line.text, line.tokens = text, tokens
            if is_new:
                insort(self._sorted.setdefault(line.group, []), line, key=_text_of)
            else:
                self._grown.add(line.group)
        line.used_ns = now_ns
        line.ends.append((self._answered, prompt.count, now_ns))
        if len(line.ends) > _MAX_ENDS:
            del line.ends[0]
        self._openings[line.opening] = line
        self.lines[line] = None
        self.lines.move_to_end(line)
        while self._text_bytes > self.kept_bytes or len(self.lines) > _MAX_LINES:
            self._drop_oldest()
        return line

    def _drop_oldest(self) -> None:
        """Forget the line that was not used for longest."""
        line, _ = self.lines.popitem(last=False)
        self._text_bytes -= len(line.text)
        line.text, line.segments = b"", None
        if self._openings.get(line.opening) is line:
            del self._openings[line.opening]
        self._sorted[line.group].remove(line)
        if not self._sorted[line.group]:
            del self._sorted[line.group]
            self._grown.discard(line.group)

    def earlier(self, head: PromptHead, answered_before: int) -> list[tuple[PromptLine, bytes, int, int]]:
        """Return the kept prompts that went to the same endpoint when so many calls were answered, the latest first.

        Each as its line, the line's text, the number of messages in it then, and when it was used.
        """
        found = []
        with self.lock:
            for line in islice(reversed(self.lines), _MAX_EARLIER):
                ends = [end for end in reversed(line.ends) if end[0] <= answered_before]
                if ends and line.head.address == head.address:
                    # Of a conversation that was sent again up to an earlier message, both prompts.
                    for _, count, used_ns in dict.fromkeys((ends[0], max(ends, key=itemgetter(1)))):
                        found.append((line, line.text, count, used_ns))
        return found

    def report(self) -> PromptCacheReport:
        """Return what was read from providers' caches so far, and why not more."""
        with self.lock:
            self._count()
            families, records = [replace(family) for family in self._families.values()], list(self._explained)
        return PromptCacheReport.of(families, records)

    def _count(self) -> None:
        """Add the calls that were answered since the last time to their families."""
        for head, record in self._uncounted:
            family = self._families.pop(record.family, None)
            if family is None:
                family = FamilyReport(family=record.family, origin=head.origin, model=head.model)
            self._families[record.family] = family
            family.count(record)
            if len(self._families) > _MAX_FAMILIES:
                name = next(name for name in self._families if name != _OTHERS)
                others = self._families.setdefault(_OTHERS, FamilyReport(family=_OTHERS, origin="", model=_OTHERS))
                others.add(self._families.pop(name))
        self._uncounted.clear()


def rules_of(facts: Any) -> CacheRules:
    """Return what a provider's facts say of its cache."""
    if facts is None:
        return CacheRules()
    cache = facts.cache
    lifetime_s = value_of(cache.lifetime_s)
    # If OpenAI's own field is taken, it is that: another one may have other effects too, such as a name for the
    # conversation in a dashboard.
    field = value_of(cache.key_field)
    if field is not None and value_of(facts.parameters.get(KEY_FIELD)) is True:
        field = KEY_FIELD
    return CacheRules(
        automatic=value_of(cache.automatic),
        minimum_tokens=value_of(cache.minimum_tokens),
        block_tokens=value_of(cache.block_tokens),
        lifetime_ns=math.inf if lifetime_s is None else lifetime_s * 1e9,
        key_field=None if field is None or "." in field else field,
        requests_per_key_per_minute=value_of(cache.requests_per_key_per_minute),
    )


def value_of(fact: Any) -> Any:
    """Return the value of a fact; None if nothing is known."""
    return None if fact is None else fact.value


def _scale(size: int, tokens: int, known: KnownBeginning) -> TokenScale:
    if known.tokens is not None and known.size == known.line_size and known.tokens <= tokens:
        return TokenScale(size, tokens, known.size, known.tokens)
    return TokenScale(size, tokens)


def _at(body: Mapping[str, Any], path: str) -> Any:
    """Return a field of a body, or of an object in it; None if it is not there."""
    name, _, inner = path.partition(".")
    value = body.get(name)
    if inner:
        return value.get(inner) if isinstance(value, Mapping) else None
    return value
