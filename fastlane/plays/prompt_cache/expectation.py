"""What a provider's prompt cache should hold: how much of a prompt earlier calls have sent alike.

All of it is worked out from the JSON of the request, in the order in which providers read it: the head (tools, formats,
instructions), then the messages. An earlier prompt is found by its opening or by hashes of its beginnings, and how far
a new one goes on alike is found by comparing the bytes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fastlane._fork import new_lock, starts_over
from fastlane.knowledge.table import Table
from fastlane.protocol.endpoints import PROMPT_FIELDS
from fastlane.protocol.prompt_marks import LEADING_ROLES

from .drift import HEAD_PARTS, DriftFinder, common_length, json_of
from .report import FamilyReport, PromptCacheReport
from .section import PromptCacheSection

if TYPE_CHECKING:
    from fastlane.engine.call import Call
    from fastlane.records.prompt import PromptCacheRecord
    from fastlane.records.usage import Usage

_MAX_LINES, _MAX_ENDS = 1_000, 64
# Earlier prompts that one is compared with.
_MAX_EARLIER = 256
_MAX_FAMILIES, _OTHERS = 256, "others"
_MAX_HEADS, _MAX_KEYS = 64, 64
# Records whose drift a report shows.
_MAX_EXPLAINED = 1_000
KEPT_BYTES: Final = 8 * 1024 * 1024
KEY_FIELD: Final = "prompt_cache_key"
_BRACKET: Final = ord("[")
# Beyond the model, what providers keep caches apart by, as they name it: OpenAI's diagnostics (the values of
# `PromptCacheDiagnosticsCacheMiss.reason`), vLLM's `cache_salt`, SGLang's `extra_key`, Fireworks' isolation key.
_PARAMETERS: Final = (
    "reasoning_effort", "verbosity", "service_tier", "cache_salt", "extra_key", "prompt_cache_isolation_key",
    "reasoning.effort", "text.verbosity",
)  # fmt: skip
# With one of these, most of the prompt is the provider's own record of the conversation.
_STORED: Final = ("previous_response_id", "conversation")


def _boundaries() -> tuple[int, ...]:
    """Return the lengths in bytes of the beginnings that are hashed: each 512 bytes or an eighth longer."""
    found = [0]
    while found[-1] < 1 << 26:
        found.append(found[-1] + max(512, found[-1] // 8))
    return tuple(found[1:])


BOUNDARIES: Final = _boundaries()


class CacheRules(NamedTuple):
    """How a provider keeps the beginnings of prompts, by its facts; None for what is not known."""

    automatic: bool | None = None
    """Whether it does so without being asked to."""
    minimum_tokens: int | None = None
    """Tokens from which on a beginning is kept."""
    block_tokens: int | None = None
    """What is read from the cache is a whole multiple of so many tokens."""
    lifetime_s: float | None = None
    """Seconds that a beginning is kept after its last use."""
    key_field: str | None = None
    """The field of the request that takes a cache key."""
    requests_per_key_per_minute: float | None = None

    def kept(self, tokens: int) -> int:
        """Return how many of so many tokens that were sent before can be read from the cache."""
        if self.block_tokens:
            tokens -= tokens % self.block_tokens
        return 0 if self.minimum_tokens and tokens < self.minimum_tokens else tokens

    def outlived(self, used_ns: int, now_ns: int) -> bool:
        """Return whether a beginning that was last used then has expired; False if its lifetime is not known."""
        return self.lifetime_s is not None and now_ns - used_ns > self.lifetime_s * 1e9


class UpstreamCache:
    """What was learned of the cache of one model at one origin."""

    __slots__ = ("keeps", "tokens_per_byte")

    def __init__(self) -> None:
        self.keeps = False
        """Whether anything was ever read from it."""
        # The rule of thumb of https://help.openai.com/en/articles/4936856-what-are-tokens-and-how-to-count-them.
        self.tokens_per_byte = 0.25


class PromptHead:
    """A request but for its messages."""

    __slots__ = (
        "_numbers", "address", "cache", "facts", "front", "is_stored", "items_name", "model", "number", "origin",
        "parameters", "rules", "seed", "tail", "text",
    )  # fmt: skip

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
        self._numbers: dict[str | None, list[int]] = {}
        is_template = isinstance(body.get("prompt"), Mapping)
        self.is_stored = is_template or any(body.get(field) is not None for field in _STORED)
        """Whether most of the prompt is not in the request."""
        before, _, after = json_of({**body, items_name: [0]}).partition(b'"%b":[0]' % items_name.encode())
        self.front = before + b'"%b":' % items_name.encode()
        self.tail = b"]" + after
        """The JSON of the request before and behind the messages."""

    def is_of(self, written: bytes) -> bool:
        """Whether a request, as JSON, has this head, and a list of messages."""
        return written.endswith(self.tail) and written.startswith(self.front) and written[len(self.front)] == _BRACKET

    def numbers(self, key: str | None) -> list[int]:
        """Return a hash of each beginning of the head, and of all of it, under a cache key."""
        numbers = self._numbers.get(key)
        if numbers is None:
            seed = hash((self.seed, key))
            numbers = [*_numbers(self.text, seed, 0), hash((seed, self.text))]
            if len(self._numbers) >= _MAX_KEYS:
                self._numbers.clear()
            self._numbers[key] = numbers
        return numbers


class LineState(NamedTuple):
    """A line after one of its calls."""

    text: bytes | None = None
    """The messages as JSON, without the bracket at the end; None if it is not kept."""
    numbers: list[int] = []  # noqa: RUF012 - never changed
    size: int = 0
    tokens: int | None = None
    used_ns: int = 0

    def is_of(self, prompt: SentPrompt) -> bool:
        """Whether it is that of a prompt."""
        if self.text is None:
            return self.size == prompt.size and self.numbers == prompt.numbers
        return self.text == prompt.text


class PromptLine:
    """One conversation (or a single prompt) as it was last sent and answered."""

    __slots__ = ("ends", "head", "key", "mask", "segments", "state")

    def __init__(self, prompt: SentPrompt) -> None:
        self.head = prompt.head
        self.key = prompt.key
        self.mask = prompt.mask
        self.state = LineState()
        """Replaced as a whole."""
        self.ends: list[tuple[int, int, int]] = []
        """For each call: how many calls were answered before it, its messages, and its time."""
        self.segments: Any = None
        """What `drift` has read of the text."""


class KnownBeginning(NamedTuple):
    """What of a prompt was sent before."""

    size: int = 0
    """Bytes that an earlier prompt had."""
    fresh_size: int = 0
    """Of these, the ones that have not expired."""
    state: LineState = LineState()
    """The earlier prompt that begins alike for longest."""
    line: PromptLine | None = None


NOTHING_KNOWN: Final = KnownBeginning()


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


class SentPrompt:
    """One call's prompt, from before it is sent until it is answered."""

    __slots__ = (
        "answered_before", "anywhere", "base_key", "count", "family", "head", "here", "key", "key_field", "leading",
        "mask", "numbers", "opening", "record", "sent_ns", "shards", "size", "text",
    )  # fmt: skip

    def __init__(self, call: Call, history: PromptHistory, volatile: int = 0) -> None:
        """Read the prompt of a call, but for so many volatile messages at its end: no later prompt has them."""
        body = call.body
        name = PROMPT_FIELDS.get(call.endpoint, "messages")
        items = body.get(name)
        written = b"" if call.changes or volatile else call.written or b""
        like = (call.origin, call.endpoint, body.get("model"), *body)
        head = history.heads.get(like)
        is_known = head is not None and head.facts is call.facts and head.is_of(written)
        if head is None or not is_known:
            head = history.add_head(like, call, name)
            is_known = head.is_of(written)
        beginning: list[Any] = [head.number]
        placements, count = call.placements, 1
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
        self.head = head
        if is_known:
            self.text = written[len(head.front) : -len(head.tail)]
            """The messages as JSON, without the bracket at the end."""
        else:
            self.text = b"" if items is None else json_of(items)[:-1]
        self.count = count
        """The number of messages."""
        self.size = len(head.text) + len(self.text)
        self.opening = hash(tuple(beginning))
        """A hash of the head, of leading system and developer messages, and of the next one."""
        self.leading = hash(tuple(beginning[:-1]))
        """The same without the next one."""
        self.numbers: list[int] = []
        """A hash of each beginning, see `BOUNDARIES`, and then the opening, under the key of the family."""
        self.mask = 0
        """What makes them the hashes under the key that is sent."""
        self.family = ""
        """Tells prompts of one kind from others."""
        self.key: str | None = None
        """The cache key that is sent."""
        self.key_field: str | None = None
        """The field of the key, if fastlane has added it."""
        self.base_key: str | None = None
        """The key of the family, of which `key` is one of so many `shards`."""
        self.shards = 1
        self.sent_ns = call.issued_ns
        self.answered_before = 0
        self.here = self.anywhere = NOTHING_KNOWN
        """What was known under the same cache key, and under any key of the family."""
        self.record: PromptCacheRecord | None = None


class PromptHistory:
    """The prompts that were sent of late, and what was read of them. Threads may share it.

    It holds at most 1,000 conversations and `kept_bytes` of their JSON; those that were not used for longest go first.
    """

    def __init__(self, *, kept_bytes: int = KEPT_BYTES, quote: bool = False) -> None:
        self.kept_bytes = kept_bytes
        self.quote = quote
        """Whether a drift shows the texts around a difference."""
        self.lock = new_lock()
        self._upstreams: Table[tuple[str, str | None], UpstreamCache] = Table("prompt caches", max_entries=256)
        self._forget()
        starts_over(self)

    def _forget(self) -> None:
        self.heads: dict[Any, PromptHead] = {}
        self._beginnings: dict[int, PromptLine] = {}
        self.lines: OrderedDict[PromptLine, None] = OrderedDict()
        """In the order of their last use."""
        self._texts: OrderedDict[PromptLine, None] = OrderedDict()
        """Those whose text is kept."""
        self._text_bytes = 0
        self._answered = 0
        self._families: OrderedDict[str, FamilyReport] = OrderedDict()
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

    def add_head(self, like: Any, call: Call, name: str) -> PromptHead:
        """Read the head of a request, and remember it for requests that are `like` it."""
        head = PromptHead(call, name, self._upstreams.fetch((call.origin, call.model), UpstreamCache))
        if len(self.heads) >= _MAX_HEADS:
            self.heads.clear()
        self.heads[like] = head
        return head

    def expect(self, prompt: SentPrompt) -> None:
        """Find out how much of a prompt that is about to be sent was sent before."""
        head = prompt.head
        prompt.answered_before = self._answered
        if head.is_stored:
            return
        if prompt.key != prompt.base_key:
            prompt.mask = hash(prompt.key)
        numbers = head.numbers(prompt.base_key)
        opening = hash((prompt.opening, prompt.base_key))
        done, is_fresh = 0, False
        line = self._beginnings.get(opening ^ prompt.mask)
        if line is not None and (state := line.state).text is not None and prompt.text.startswith(state.text):
            # A conversation that goes on, as most do: what it had need not be hashed again.
            prompt.here = prompt.anywhere = KnownBeginning(state.size, state.size, state, line)
            is_fresh = not head.rules.outlived(state.used_ns, prompt.sent_ns)
            done = len(state.numbers) - len(numbers) - 1
            numbers = state.numbers[:-1]
        if BOUNDARIES[done] <= len(prompt.text):
            more = _numbers(prompt.text, numbers[-1], done)
            numbers = numbers + more
            # Another line may have even more of the prompt.
            is_fresh = is_fresh and more[0] ^ prompt.mask not in self._beginnings
        prompt.numbers = [*numbers, opening]
        if prompt.shards > 1 or not is_fresh:
            prompt.here = prompt.anywhere = self._known(prompt, prompt.mask)
            if prompt.mask:
                prompt.anywhere = self._known(prompt, 0)

    def forget_key(self, prompt: SentPrompt) -> None:
        """Take note that the provider has refused the cache key, and that the prompt was sent without it."""
        prompt.key = prompt.base_key = None
        prompt.mask, prompt.shards = 0, 1
        self.expect(prompt)
        prompt.here = prompt.anywhere = NOTHING_KNOWN

    def _known(self, prompt: SentPrompt, mask: int) -> KnownBeginning:
        """Return what of a prompt was sent before under the cache key of a mask."""
        known, line, is_fresh = NOTHING_KNOWN, None, False
        last = len(prompt.numbers) - 1
        # From the opening, and then from the longest beginning on.
        for at in range(last, -1, -1):
            found = self._beginnings.get(prompt.numbers[at] ^ mask)
            if found is None:
                continue
            if found is not line:
                line, state = found, found.state
                size = _common_size(prompt, line, state, at)
                is_fresh = not prompt.head.rules.outlived(state.used_ns, prompt.sent_ns)
                fresh_size = max(known.fresh_size, size) if is_fresh else known.fresh_size
                if size > known.size:
                    known = KnownBeginning(size, fresh_size, state, line)
                elif fresh_size > known.fresh_size:
                    known = known._replace(fresh_size=fresh_size)
            if is_fresh and at < last:
                break
        return known

    def settle(
        self, prompt: SentPrompt, usage: Usage, *, answered: bool, now_ns: int, reason: str | None = None
    ) -> PromptCacheRecord:
        """Record what was read of a prompt whose call is over, at `now_ns`. Once settled, it returns the same record.

        Only a prompt that was `answered` is in the provider's cache from now on. `reason` is the provider's own word
        for why it has read no more.
        """
        if prompt.record is not None:
            return prompt.record
        head, rules, known = prompt.head, prompt.head.rules, prompt.here
        cached, tokens = usage.cached_tokens, usage.input_tokens
        if cached:
            head.cache.keeps = True
        if tokens is None:
            tokens = round(prompt.size * head.cache.tokens_per_byte)
        elif answered and prompt.size and not head.is_stored:
            head.cache.tokens_per_byte = tokens / prompt.size
        scale = _scale(prompt, tokens, known)
        reusable = scale.at(known.fresh_size)
        if cached and prompt.shards > 1 and cached > reusable:
            # A provider may keep the prompts of each key on another machine, or all of them in one cache. Whichever is
            # nearer to what it has read, it did for this call.
            wider = _scale(prompt, tokens, prompt.anywhere)
            if 2 * cached > reusable + wider.at(prompt.anywhere.fresh_size):
                known, scale = prompt.anywhere, wider
                reusable = scale.at(known.fresh_size)
        keeps = answered and not head.is_stored and bool(rules.automatic or prompt.key is not None or head.cache.keeps)
        expected = rules.kept(reusable) if keeps else None
        goes_on = 0 < known.size == known.fresh_size and known.size in (prompt.size, known.state.size)
        is_lost = reason is not None or (cached is not None and expected is not None and cached < expected)
        # Of less than a block nothing can have been kept.
        may_depart = not goes_on and tokens - reusable >= (rules.block_tokens or 1)
        finder = None
        if answered and not head.is_stored and (is_lost or may_depart):
            finder = DriftFinder(
                history=self,
                rules=rules,
                key=prompt.key,
                count=prompt.count,
                sent_ns=prompt.sent_ns,
                answered_before=prompt.answered_before,
                known_size=known.size,
                fresh_size=known.fresh_size,
                scale=scale,
                keeps=keeps,
                cached=cached,
                reason=reason,
            )
        record = prompt.record = PromptCacheSection(
            family=prompt.family,
            prompt_tokens=tokens,
            reusable_tokens=reusable,
            expected_tokens=expected,
            cached_tokens=cached,
            explanation=finder,
            key=prompt.key,
            shards=prompt.shards,
        )
        if answered:
            with self.lock:
                self._answered += 1
                line = self._enter(prompt, record, usage.input_tokens, now_ns)
                if finder is not None:
                    finder.line = line
                    self._explained.append(record)
        return record

    def _enter(
        self, prompt: SentPrompt, record: PromptCacheRecord, tokens: int | None, now_ns: int
    ) -> PromptLine | None:
        """Count an answered call. Its prompt is in the provider's cache from now on."""
        family = self._families.get(prompt.family)
        if family is None:
            head = prompt.head
            family = FamilyReport(family=prompt.family, origin=head.origin, model=head.model)
            self._families[prompt.family] = family
        family.count(record)
        family.key = record.key
        self._families.move_to_end(prompt.family)
        if len(self._families) > _MAX_FAMILIES:
            self._merge_oldest_family()
        if prompt.head.is_stored or not prompt.text:
            return None
        known, size = prompt.here, prompt.size
        line = self._beginnings.get(prompt.numbers[-1] ^ prompt.mask)
        if line is None or not line.state.is_of(prompt):
            line = known.line
            # A line that went on meanwhile has another end: this prompt is a branch of it.
            if line is None or known.size != known.state.size or line.state.size != known.size:
                line = PromptLine(prompt)
        if line.state.text is not None:
            self._text_bytes -= line.state.size
        line.state = LineState(prompt.text if self.kept_bytes else None, prompt.numbers, size, tokens, now_ns)
        line.ends.append((self._answered, prompt.count, now_ns))
        if len(line.ends) > _MAX_ENDS:
            del line.ends[0]
        self._beginnings.update(dict.fromkeys(prompt.numbers, line))
        if prompt.mask:
            self._beginnings.update(dict.fromkeys([number ^ prompt.mask for number in prompt.numbers], line))
        self.lines[line] = None
        self.lines.move_to_end(line)
        if self.kept_bytes:
            self._text_bytes += size
            self._texts[line] = None
            self._texts.move_to_end(line)
        if self._text_bytes > self.kept_bytes or len(self.lines) > _MAX_LINES:
            self._make_room()
        return line

    def _make_room(self) -> None:
        """Forget the texts and the lines that were not used for longest."""
        while self._text_bytes > self.kept_bytes:
            line, _ = self._texts.popitem(last=False)
            self._text_bytes -= line.state.size
            line.state = line.state._replace(text=None)
            line.segments = None
        while len(self.lines) > _MAX_LINES:
            line, _ = self.lines.popitem(last=False)
            if line in self._texts:
                del self._texts[line]
                self._text_bytes -= line.state.size
            for number in line.state.numbers:
                for masked in (number, number ^ line.mask):
                    if self._beginnings.get(masked) is line:
                        del self._beginnings[masked]

    def earlier(self, head: PromptHead, answered_before: int) -> list[tuple[PromptLine, bytes, int, int]]:
        """Return the kept prompts that went to the same endpoint when so many calls were answered, the latest first.

        Each as its line, the line's text, the number of messages in it then, and when it was used.
        """
        with self.lock:
            latest = list(islice(reversed(self._texts), _MAX_EARLIER))
        found = []
        for line in latest:
            text = line.state.text
            end = next((end for end in reversed(line.ends) if end[0] <= answered_before), None)
            if text is not None and end is not None and line.head.address == head.address:
                found.append((line, text, end[1], end[2]))
        return found

    def report(self) -> PromptCacheReport:
        """Return what was read from providers' caches so far, and why not more."""
        with self.lock:
            families, records = [replace(family) for family in self._families.values()], list(self._explained)
        return PromptCacheReport.of(families, records)

    def _merge_oldest_family(self) -> None:
        name = next(name for name in self._families if name != _OTHERS)
        others = self._families.setdefault(_OTHERS, FamilyReport(family=_OTHERS, origin="", model=_OTHERS))
        others.add(self._families.pop(name))


def rules_of(facts: Any) -> CacheRules:
    """Return what a provider's facts say of its cache."""
    if facts is None:
        return CacheRules()
    cache = facts.cache
    # If OpenAI's own field is taken, it is that: another one may have other effects too, such as a name for the
    # conversation in a dashboard.
    field = value_of(cache.key_field)
    if field is not None and value_of(facts.parameters.get(KEY_FIELD)) is True:
        field = KEY_FIELD
    return CacheRules(
        automatic=value_of(cache.automatic),
        minimum_tokens=value_of(cache.minimum_tokens),
        block_tokens=value_of(cache.block_tokens),
        lifetime_s=value_of(cache.lifetime_s),
        key_field=None if field is None or "." in field else field,
        requests_per_key_per_minute=value_of(cache.requests_per_key_per_minute),
    )


def value_of(fact: Any) -> Any:
    """Return the value of a fact; None if nothing is known."""
    return None if fact is None else fact.value


def _at(body: Mapping[str, Any], path: str) -> Any:
    """Return a field of a body, or of an object in it; None if it is not there."""
    name, _, inner = path.partition(".")
    value = body.get(name)
    if inner:
        return value.get(inner) if isinstance(value, Mapping) else None
    return value


def _numbers(text: bytes, number: int, done: int) -> list[int]:
    """Hash the beginnings of a text, but for those that are `done`. `number`: the hash of the one before."""
    numbers: list[int] = []
    start = BOUNDARIES[done - 1] if done else 0
    for end in BOUNDARIES[done:]:
        if end > len(text):
            break
        number = hash((number, text[start:end]))
        numbers.append(number)
        start = end
    return numbers


def _common_size(prompt: SentPrompt, line: PromptLine, state: LineState, at: int) -> int:
    """Return the bytes that a prompt and a line begin with alike, which have the number at `at` in common."""
    head = prompt.head
    heads = len(head.numbers(prompt.base_key))
    if at < heads - 1:
        return common_length(head.text, line.head.text)
    if state.text is not None:
        if prompt.text.startswith(state.text):
            return state.size
        return len(head.text) + common_length(prompt.text, state.text)
    # Without the text it is known to a boundary only, but for a prompt that has all of the line.
    count = common_length(prompt.numbers, state.numbers)
    if count >= len(state.numbers) - 1:
        return min(state.size, prompt.size)
    return len(head.text) + (BOUNDARIES[count - heads - 1] if count > heads else 0)


def _scale(prompt: SentPrompt, tokens: int, known: KnownBeginning) -> TokenScale:
    state = known.state
    if state.tokens is not None and known.size == state.size and state.tokens <= tokens:
        return TokenScale(prompt.size, tokens, state.size, state.tokens)
    return TokenScale(prompt.size, tokens)
