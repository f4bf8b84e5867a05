"""The prompts that a client has sent: how much of a new one its provider's cache should hold.

All of it is worked out from the JSON of the request, in the order in which providers read it: the head (tools, formats,
instructions), then the messages. How far a new prompt begins like an earlier one is found by comparing the bytes.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Mapping
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from fastlane._fork import new_lock, starts_over
from fastlane.protocol.endpoints import PROMPT_FIELDS
from fastlane.protocol.prompt_marks import LEADING_ROLES
from fastlane.providers.facts import value_of

from .drift import HEAD_PARTS, common_length, find_drift, json_of
from .key import KEY_FIELD, stable_key
from .section import PromptCacheSection

if TYPE_CHECKING:
    from fastlane.engine.call import Call
    from fastlane.engine.session import CallOutcome
    from fastlane.providers import ProviderFacts
    from fastlane.records.plays import PromptCacheRecord

_MAX_LINES, _MAX_ENDS, _MAX_CHUNKS, _MAX_FORMS, _MAX_STABLE_KEYS = 1_000, 64, 32, 64, 8_192
# Earlier prompts that the beginning of a new conversation is compared with, and those that may explain a drift.
_MAX_COMPARED, _MAX_EARLIER = 8, 256
# If the provider does not count: https://help.openai.com/en/articles/4936856-what-are-tokens-and-how-to-count-them.
_TOKENS_PER_BYTE: Final = 0.25
_BRACKET: Final = ord("[")
# Beyond the model, what providers keep caches apart by, as they name it: OpenAI's diagnostics (the values of
# `PromptCacheDiagnosticsCacheMiss.reason`), vLLM's `cache_salt`, SGLang's `extra_key`, Fireworks' isolation key.
_PARAMETERS: Final = (
    "reasoning_effort", "verbosity", "service_tier", "cache_salt", "extra_key", "prompt_cache_isolation_key",
    "reasoning.effort", "text.verbosity",
)  # fmt: skip
_RULES: Final = (
    "automatic", "minimum_tokens", "block_tokens", "lifetime_s", "requests_per_key_per_minute", "key_field",
)  # fmt: skip
# With one of these, most of the prompt is the provider's own record of the conversation.
_STORED: Final = ("previous_response_id", "conversation")


class CacheRules:
    """How a provider keeps the beginnings of prompts, by its facts; None for what is not known."""

    def __init__(self, facts: ProviderFacts | None) -> None:
        known = {} if facts is None else {name: value_of(getattr(facts.cache, name)) for name in _RULES}
        self.automatic: bool | None = known.get("automatic")
        """Whether it does so without being asked to."""
        self.minimum_tokens: int | None = known.get("minimum_tokens")
        """Tokens from which on a beginning is kept."""
        self.block_tokens: int | None = known.get("block_tokens")
        """What is read from the cache is a whole multiple of so many tokens."""
        self.lifetime_ns: float = (known.get("lifetime_s") or math.inf) * 1e9
        """Nanoseconds that a beginning is kept after its last use."""
        self.requests_per_key_per_minute: float | None = known.get("requests_per_key_per_minute")
        # OpenAI's own field if it is taken: another one may have other effects too, such as a name for the conversation
        # in a dashboard.
        field = known.get("key_field")
        if field is not None and facts is not None and value_of(facts.parameters.get(KEY_FIELD)) is True:
            field = KEY_FIELD
        self.key_field: str | None = None if field is None or "." in field else field
        """The field of the request that takes a cache key."""

    def kept(self, tokens: int) -> int:
        """Return how many of so many tokens that were sent before can be read from the cache."""
        if self.block_tokens:
            tokens -= tokens % self.block_tokens
        return 0 if self.minimum_tokens and tokens < self.minimum_tokens else tokens


class PromptHead:
    """What is read of a request before its messages."""

    def __init__(self, call: Call) -> None:
        body = call.body
        self.items_name = PROMPT_FIELDS[call.endpoint]
        self.facts = call.facts
        self.rules = CacheRules(call.facts)
        self.is_read = False
        """Whether anything of such a prompt was ever read from the cache."""
        self.address = (call.origin, call.endpoint)
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

    def shared_by(self, other: PromptHead) -> PromptHead:
        """Return this head if another one equals it: calls that differ in their `user` alone share one."""
        if self.facts is other.facts and (self.number, self.is_stored) == (other.number, other.is_stored):
            return self
        other.is_read = self.is_read
        return other


class RequestForm:
    """The JSON of a request before and after its messages."""

    def __init__(self, call: Call, earlier: RequestForm | None) -> None:
        head = PromptHead(call)
        self.head: PromptHead = head if earlier is None else earlier.head.shared_by(head)
        name = head.items_name.encode()
        before, _, after = json_of({**call.body, head.items_name: [0]}).partition(b'"%b":[0]' % name)
        self.front = before + b'"%b":' % name
        self.tail = b"]" + after

    def is_of(self, written: bytes) -> bool:
        """Return whether a request, as JSON, has this form, and a list of messages."""
        return written.endswith(self.tail) and written.startswith(self.front) and written[len(self.front)] == _BRACKET


class SentPrompt:
    """One call's prompt. Once the call is over, it has no text any more."""

    head: PromptHead
    kept: tuple[bytes, int, int] = (b"", 0, 0)
    """The JSON that the messages stand in, where they begin, and where they end, without the last bracket."""
    size: int
    """Bytes of the head and the messages."""
    count: int
    """The number of messages."""
    opening: int
    """A hash of the head, of leading system and developer messages, and of the next one."""
    stable_key: str
    """The cache key of all prompts with these stable parts."""
    given_key: str | None
    """The key that the caller set."""
    key: str | None
    """The cache key that is sent."""
    shards: int = 1
    """The number of keys over which the calls of the family are spread."""
    key_field: str | None = None
    """The field of the key, if fastlane has added it."""
    sent_ns: int
    answered_before: int
    """How many calls were answered before it was sent."""
    known_size: int = 0
    """Bytes of the longest prefix that an earlier prompt had and that has not expired."""
    known_tokens: int | None = None
    """Tokens of that prefix, if it was counted as a prompt of its own."""
    earlier: PromptLine | None = None
    """The earlier prompt."""
    goes_on: bool = False
    """Whether the prompt begins with all of the earlier prompt, or the reverse."""
    answered: bool
    tokens: int
    """Its tokens as the provider counted them, or an estimate."""
    keeps: bool
    """Whether the provider is known to keep the prompt."""
    cached: int | None
    """Tokens that it has read from its cache."""
    reason: str | None
    """The reason that it gives for having read no more."""
    line: PromptLine | None = None
    """The line that the prompt has become part of."""

    def common_size(self, line: PromptLine) -> int:
        """Return how many bytes an earlier prompt has in common with this one at the front."""
        if line.head.number != self.head.number:
            return common_length(self.head.text, line.head.text)
        body, start, stop = self.kept
        at = start
        for chunk in line.chunks:
            end = min(at + len(chunk), stop)
            if end == at + len(chunk) and body.startswith(chunk, at):
                at = end
                continue
            # Most differ near the front: no more is copied than has to be compared.
            reach = 1_024
            while reach < end - at and body.startswith(chunk[:reach], at):
                reach *= 8
            at += common_length(body[at : min(at + reach, end)], chunk[:reach])
            break
        return len(self.head.text) + at - start

    def tokens_of(self, size: int) -> int:
        """Return the tokens of so many bytes from the beginning."""
        known_size, known_tokens = (0, 0) if self.known_tokens is None else (self.known_size, self.known_tokens)
        if size < known_size:
            return round(known_tokens * size / known_size)
        if self.size <= known_size:
            return self.tokens
        share = (min(size, self.size) - known_size) / (self.size - known_size)
        return round(known_tokens + (self.tokens - known_tokens) * share)


class PromptLine:
    """One conversation (or a single prompt) as it was last sent and answered."""

    def __init__(self, prompt: SentPrompt) -> None:
        self.head = prompt.head
        self.size = len(prompt.head.text)
        """Bytes of the head and the messages."""
        self.chunks: tuple[bytes, ...] = ()
        """The JSON of the messages, in the pieces in which it grew; empty once it is forgotten."""
        self.end = b""
        """The last bracket."""
        self.key = prompt.key
        self.opening = hash((prompt.opening, prompt.key))
        self.group = hash((prompt.head.seed, prompt.key))
        """The provider, the model and the key."""
        self.tokens: int | None = None
        """Its tokens as the provider counted them."""
        self.used_ns = 0
        self.ends: deque[tuple[int, int, int]] = deque(maxlen=_MAX_ENDS)
        """For each call: how many calls were answered before it, the number of messages, and its time."""
        self.segments: Any = None
        """What `drift` has read of the text."""


class PromptHistory:
    """The prompts that were sent of late, and what was read of them. Threads may share it.

    It holds at most 1,000 conversations and `kept_bytes` of their JSON; those that were not used for longest go first.
    """

    def __init__(self, kept_bytes: int) -> None:
        self.kept_bytes = kept_bytes
        self.lock = new_lock()
        self._forget()
        starts_over(self)

    def _forget(self) -> None:
        self._forms: dict[Any, RequestForm] = {}
        self._stable_keys: dict[int, str] = {}
        self.lines: OrderedDict[PromptLine, None] = OrderedDict()
        """In the order of their last use."""
        self._openings: dict[int, PromptLine] = {}
        self._text_bytes = 0
        self._answered = 0

    def clear(self) -> None:
        """Forget all prompts."""
        with self.lock:
            self._forget()

    def begin_in_child(self) -> None:
        """See `StartsOver`: what another thread of the parent was changing is half changed."""
        if self.lock.locked():
            self._forget()

    def read(self, call: Call, volatile: int = 0) -> SentPrompt:
        """Read the prompt of a call, without so many volatile messages at its end: no later prompt has them."""
        body, endpoint, placements = call.body, call.endpoint, call.placements
        name = PROMPT_FIELDS[endpoint]
        items = body.get(name)
        written = b"" if volatile else call.written or b""
        like = (call.origin, endpoint, call.model, *body)
        form = self._forms.get(like)
        is_known = form is not None and form.head.facts is call.facts and form.is_of(written)
        if form is None or not is_known:
            form = RequestForm(call, form)
            if len(self._forms) >= _MAX_FORMS:
                self._forms.clear()
            self._forms[like] = form
            is_known = form.is_of(written)
        head = form.head
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
            prompt.kept = written, len(form.front), len(written) - len(form.tail)
        elif items is not None:
            messages = json_of(items)
            prompt.kept = messages, 0, len(messages) - 1
        prompt.size = len(head.text) + prompt.kept[2] - prompt.kept[1]
        prompt.opening = hash(tuple(beginning))
        leading = hash(tuple(beginning[:-1]))
        stable = self._stable_keys.get(leading)
        if stable is None:
            if len(self._stable_keys) >= _MAX_STABLE_KEYS:
                self._stable_keys.clear()
            stable = self._stable_keys[leading] = stable_key(endpoint, body, placements)
        prompt.stable_key = stable
        given = body.get(head.rules.key_field or KEY_FIELD) or body.get(KEY_FIELD)
        prompt.key = prompt.given_key = given if isinstance(given, str) else None
        return prompt

    def expect(self, prompt: SentPrompt) -> None:
        """Find the longest prefix of a prompt that was sent before under its key and has not expired."""
        prompt.answered_before = self._answered
        if prompt.head.is_stored:
            return
        oldest_ns = prompt.sent_ns - prompt.head.rules.lifetime_ns
        with self.lock:
            line, known_size = self._openings.get(hash((prompt.opening, prompt.key))), 0
            if line is not None and line.used_ns >= oldest_ns and prompt.common_size(line) == line.size:
                # A conversation that goes on, as most do.
                known_size = line.size
            else:
                group = hash((prompt.head.seed, prompt.key))
                recent = islice((one for one in reversed(self.lines) if one.group == group), _MAX_COMPARED)
                for one in dict.fromkeys((*recent, line)):
                    if one is not None and one.used_ns >= oldest_ns:
                        common = prompt.common_size(one)
                        if common > known_size:
                            line, known_size = one, common
            if line is not None and known_size:
                prompt.earlier, prompt.known_size = line, known_size
                is_whole = known_size == line.size
                prompt.known_tokens = line.tokens if is_whole else None
                prompt.goes_on = is_whole or known_size == prompt.size

    def forget_key(self, prompt: SentPrompt) -> None:
        """Take note that the provider has refused the cache key, and that the prompt was sent without it."""
        prompt.key = prompt.earlier = prompt.known_tokens = None
        prompt.shards, prompt.known_size, prompt.goes_on = 1, 0, False

    def enter(self, prompt: SentPrompt, outcome: CallOutcome) -> None:
        """Remember a prompt whose call is over: if it was answered, it is in the provider's cache from now on."""
        head, status = prompt.head, outcome.status_code
        prompt.answered = status is not None and status < 300
        if prompt.answered:
            usage = outcome.usage
            head.is_read = head.is_read or bool(usage.cached_tokens)
            with self.lock:
                self._answered += 1
                if self.kept_bytes and not head.is_stored and prompt.size > len(head.text):
                    prompt.line = self._line_with(prompt, usage.input_tokens, outcome.ended_ns)
        prompt.kept = SentPrompt.kept

    def settle(self, prompt: SentPrompt, outcome: CallOutcome) -> PromptCacheRecord:
        """Return the record of what was read of a prompt."""
        head, size, answered = prompt.head, prompt.size, prompt.answered
        usage, reason = outcome.usage, outcome.cache_reason
        rules, cached = head.rules, None if usage.estimated else usage.cached_tokens
        counted = usage.input_tokens
        tokens = prompt.tokens = round(size * _TOKENS_PER_BYTE) if counted is None else counted
        if prompt.known_tokens is not None and prompt.known_tokens > tokens:
            prompt.known_tokens = None
        reusable = prompt.tokens_of(prompt.known_size) if prompt.known_size else 0
        if cached and prompt.shards > 1:
            # Some providers keep the prompts of all keys in one cache: what was read was sent before.
            reusable = max(reusable, cached)
        keeps = bool(rules.automatic or prompt.key is not None or head.is_read)
        keeps = keeps and answered and not head.is_stored and self.kept_bytes > 0
        expected = rules.kept(reusable) if keeps else None
        is_lost = reason is not None or (cached is not None and expected is not None and cached < expected)
        # Of less than a block nothing can have been kept.
        may_depart = not prompt.goes_on and tokens - reusable >= (rules.block_tokens or 1)
        departs = answered and not head.is_stored and (is_lost or may_depart)
        prompt.keeps, prompt.cached, prompt.reason = keeps, cached, reason
        return PromptCacheSection(
            family=f"{hash((head.address[0], prompt.stable_key, prompt.given_key)) & 0xFFFF_FFFF_FFFF_FFFF:016x}",
            prompt_tokens=tokens,
            reusable_tokens=reusable,
            expected_tokens=expected,
            cached_tokens=cached,
            explanation=partial(find_drift, self, prompt) if departs else None,
            key=prompt.key,
            shards=prompt.shards,
        )

    def _line_with(self, prompt: SentPrompt, tokens: int | None, now_ns: int) -> PromptLine:
        """Return the conversation that the prompt goes on with, or a new one, with the prompt as its end."""
        line = prompt.earlier
        # A line that has grown since then may be another branch of the conversation.
        if line is None or line not in self.lines or prompt.known_size not in (prompt.size, line.size):
            line = self._openings.get(hash((prompt.opening, prompt.key)))
            if line is None or prompt.common_size(line) < min(prompt.size, line.size):
                line = PromptLine(prompt)
        added = prompt.size - line.size
        if added > 0:
            body, _, stop = prompt.kept
            # A copy of what is new: what orjson has written holds a buffer of 32 kB or more.
            chunks = (*line.chunks, body[stop - added : stop])
            line.chunks = chunks if len(chunks) < _MAX_CHUNKS else (b"".join(chunks),)
            line.end, line.size = body[stop : stop + 1], prompt.size
            self._text_bytes += added
        if added >= 0:
            line.tokens = tokens
        line.used_ns = now_ns
        line.ends.append((self._answered, prompt.count, now_ns))
        self._openings[line.opening] = line
        self.lines[line] = None
        self.lines.move_to_end(line)
        while self._text_bytes > self.kept_bytes or len(self.lines) > _MAX_LINES:
            oldest, _ = self.lines.popitem(last=False)
            self._text_bytes -= oldest.size - len(oldest.head.text)
            oldest.chunks, oldest.segments = (), None
            if self._openings.get(oldest.opening) is oldest:
                del self._openings[oldest.opening]
        return line

    def earlier(self, head: PromptHead, answered_before: int) -> list[tuple[PromptLine, int, int]]:
        """Return the kept prompts that went to the same endpoint when so many calls were answered, the latest first.

        Each as its line, the number of messages in it then, and when it was used.
        """
        found = []
        with self.lock:
            for line in islice(reversed(self.lines), _MAX_EARLIER):
                ends = [end for end in reversed(line.ends) if end[0] <= answered_before]
                if ends and line.head.address == head.address:
                    # Of a conversation that was sent again up to an earlier message, both prompts.
                    for _, count, used_ns in dict.fromkeys((ends[0], max(ends, key=itemgetter(1)))):
                        found.append((line, count, used_ns))
        return found


def _at(body: Mapping[str, Any], path: str) -> Any:
    """Return a field of a body, or of an object in it; None if it is not there."""
    name, _, inner = path.partition(".")
    value = body.get(name)
    if inner:
        return value.get(inner) if isinstance(value, Mapping) else None
    return value
