"""Cache keys: one name for all prompts that begin alike, spread over several where a provider limits calls per key."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from fastlane._fork import new_lock
from fastlane.protocol.endpoints import COMPLETIONS, PROMPT_FIELDS
from fastlane.protocol.prompt_marks import LEADING_ROLES

from .drift import json_of

if TYPE_CHECKING:
    from fastlane.engine.call import Call
    from fastlane.protocol.prompt_marks import Placement

    from .history import SentPrompt
    from .play import PromptCache

KEY_FIELD: Final = "prompt_cache_key"

# Providers begin to keep a prompt at 1,024 tokens (https://developers.openai.com/api/docs/guides/prompt-caching), about
# 4,096 characters. Prompts that are alike so far are worth one key, whatever follows: retrieved documents at the end of
# a system prompt must not make a key of their own for every call.
_HEAD_CHARACTERS: Final = 4_096
# Of a longer text no more is read, so that a key costs the same for every length.
_MAX_CHARACTERS: Final = 2 * _HEAD_CHARACTERS
# A first message as long as this (512 tokens) begins with what others may send too; behind the stable prefix that is
# enough to be kept.
_SESSION_CHARACTERS: Final = 2_048

# With a digit in it, it is a time, a date, a counter, a UUID, or a hexadecimal or base64 value.
_TOKEN = re.compile(r"[\w+/=-]+")
_DIGIT = re.compile(r"\d")
# What stands beside the digits of a date, or beside those of a time ("a.m.").
_NAMES: Final = (
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday Mon Tue Tues Wed Thu Thurs Fri Sat Sun January February "
    "March April May June July August September October November December Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov "
    "Dec AM PM A P M UTC GMT"
)
_CALENDAR = frozenset(form for name in _NAMES.split() for form in (name, name.lower(), name.upper()))
_WORD = re.compile(r"[^\W\d_]+")
# By these an application says itself who is talking; metadata may hold anything else, and may change with each call.
_SESSION_NAMES: Final = ("session_id", "conversation_id", "thread_id", "chat_id")

_Placements = Sequence["Placement | None"] | None


def stable_key(endpoint: str, body: Mapping[str, Any], placements: _Placements = None) -> str:
    """Return the cache key of a request: "fl-" and 20 hexadecimal digits, equal in every process.

    It is made of the model, the tools in any order, the response format and the stable segments: the messages that the
    caller declared stable, whole, or else the beginning of the leading system and developer messages. What looks
    volatile in them (words with digits, dates) is left out, so that a clock does not make a key for every call.
    """
    text = body.get("text")
    form = body.get("response_format") or (text.get("format") if isinstance(text, Mapping) else None)
    tools = body.get("tools") or []
    instructions = body.get("instructions")
    texts = [instructions] if isinstance(instructions, str) else []
    texts += [text for item, is_stable in _items(endpoint, body, placements) if is_stable for text in _texts(item)]
    limit = _HEAD_CHARACTERS if placements is None else None
    parts = [
        str(body.get("model")),
        *sorted(_tool_digest(json_of(tool)) for tool in (tools if isinstance(tools, list) else [tools])),
        _tool_digest(json_of(form)) if form else "",
        _stable_text("\n".join(texts)[: limit and _MAX_CHARACTERS])[:limit],
    ]
    return f"fl-{_digest(parts, 10).hex()}"


def session_of(endpoint: str, body: Mapping[str, Any], placements: _Placements = None) -> int:
    """Return a 64-bit number that is the same for all calls of one conversation, in every process.

    It is that of the conversation's id where the body names one (`conversation`, `metadata.session_id` and the like),
    else of the end user (`safety_identifier`, `user`) and the first message after the stable ones. A long first message
    counts by its beginning alone: conversations about the same document are worth the same machine.
    """
    named = body.get("conversation")
    if isinstance(named, Mapping):
        named = named.get("id")
    metadata = body.get("metadata")
    if not named and isinstance(metadata, Mapping):
        named = next((metadata[name] for name in _SESSION_NAMES if metadata.get(name)), None)
    if isinstance(named, str | int):
        return _number("named", str(named))
    user = body.get("safety_identifier") or body.get("user")
    first = None
    # A chained answer's request holds the newest message alone, which is another at every turn.
    if not body.get("previous_response_id"):
        first = next((item for item, is_stable in _items(endpoint, body, placements) if not is_stable), None)
    text = "".join(_texts(first))[:_SESSION_CHARACTERS]
    if len(text) >= _SESSION_CHARACTERS:
        return _number("shared", text)
    return _number(str(user) if isinstance(user, str | int) else "", text)


def _items(endpoint: str, body: Mapping[str, Any], placements: _Placements) -> Iterator[tuple[Any, bool]]:
    """Yield the messages, and whether they are stable; volatile ones are left out."""
    items = body.get(PROMPT_FIELDS.get(endpoint, "messages"))
    leads = True
    for index, item in enumerate(items if isinstance(items, list | tuple) else (items,)):
        leads = leads and isinstance(item, Mapping) and item.get("role") in LEADING_ROLES
        if placements is None:
            yield item, leads
        elif placements[index] != "volatile":
            yield item, placements[index] == "stable"


def _texts(item: Any) -> list[str]:
    """Return what a message says. A mark beside a text, which is there at one turn and not at the next, is left out."""
    content = item.get("content") if isinstance(item, Mapping) else item
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        return [
            text if isinstance(text, str) else json_of(part).decode() for text, part in zip(parts, content, strict=True)
        ]
    return [content if isinstance(content, str) else json_of(item).decode()]


def _stable_text(text: str) -> str:
    """Return a text without words that have a digit in them, and without names of days and months beside these."""
    lines = [_stable_words(line) if _DIGIT.search(line) else line.strip() for line in text.splitlines()]
    return "\n".join(filter(None, lines))


def _stable_words(line: str) -> str:
    words: list[str] = []
    for token in _TOKEN.findall(line):
        if token.isalpha():
            words.append(token)
        elif not _DIGIT.search(token):
            words += _WORD.findall(token)
    return " ".join([word for word in words if word not in _CALENDAR])


@lru_cache(maxsize=1_024)
def _tool_digest(written: bytes) -> str:
    """Return the digest of the words of a tool or a schema, in whatever order its keys were written."""
    return _digest(sorted(_WORD.findall(_stable_words(written.decode()))), 8).hex()


def _digest(texts: Sequence[str], size: int) -> bytes:
    return blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=size).digest()


def _number(*texts: str) -> int:
    return int.from_bytes(_digest(texts, 8), "big")


# Key spreading

_MINUTE_NS: Final = 60_000_000_000
# Sessions differ in how often they call, and calls come in bursts: where the mean of the shards is half the limit, few
# shards pass it at any moment. A shard that is not needed costs one reading of the stable prefix, since each is called
# often enough to stay in the cache.
_FILL: Final = 0.5
# A burst is believed before a minute is over, but not before it has lasted this long.
_SHORTEST_NS: Final = 10_000_000_000
# How long more shards are kept than are needed: providers forget a prefix after 5 to 10 minutes without use
# (https://developers.openai.com/api/docs/guides/prompt-caching), and until then a session finds it where it was.
_KEPT_NS: Final = 10 * _MINUTE_NS
_MAX_SHARDS: Final = 4_096
_MAX_CALLS: Final = 32_768
_MAX_RATES: Final = 1_024
_MAX_SESSIONS: Final = 16_384


class _KeyRate:
    """The calls of one key in the last minute, and the number of its shards."""

    __slots__ = ("calls", "kept_until_ns", "shards")

    def __init__(self) -> None:
        self.calls: deque[int] = deque(maxlen=_MAX_CALLS)
        """Their times in nanoseconds."""
        self.shards = 1
        self.kept_until_ns = 0

    def count(self, now_ns: int, limit: float) -> int:
        """Count a call and return the number of shards: as many as are needed, or were needed of late."""
        calls = self.calls
        while calls and calls[0] <= now_ns - _MINUTE_NS:
            calls.popleft()
        calls.append(now_ns)
        per_minute = len(calls)
        if per_minute > limit:
            lasted_ns = now_ns - calls[0]
            per_minute = max(per_minute, (len(calls) - 1) * _MINUTE_NS // max(lasted_ns, _SHORTEST_NS))
        needed = min(_MAX_SHARDS, math.ceil(per_minute / (limit * _FILL))) if per_minute > limit else 1
        if needed >= self.shards or now_ns > self.kept_until_ns:
            self.shards, self.kept_until_ns = needed, now_ns + _KEPT_NS
        return self.shards


class KeySpreader:
    """Measures how often each cache key is used, and spreads its calls over several keys. Thread-safe.

    A key has one shard until its rate passes the limit, grows at once and shrinks after 10 minutes. Which shard a
    session gets follows from its number and the count of shards: jump consistent hashing, Lamping and Veach 2014,
    https://arxiv.org/abs/1406.2294. It keeps the shard if more are added.
    """

    def __init__(self) -> None:
        self._lock = new_lock()
        self.clear()

    def clear(self) -> None:
        """Forget all rates and sessions."""
        # In the order of their last use.
        self._rates: dict[tuple[str, str], _KeyRate] = {}
        self._places: dict[tuple[str, int], int] = {}

    def with_key(self, call: Call, prompt: SentPrompt, play: PromptCache) -> Call:
        """Return the call with a cache key, if its provider takes one, and note on the prompt which one it has."""
        body, rules = call.body, prompt.head.rules
        name = rules.key_field
        if name is None or KEY_FIELD in body or name in body or name in call.refused:
            return call
        # Of a prompt that is too short nothing is kept. A token is seldom less than a byte.
        is_short = prompt.size < (rules.minimum_tokens or 0) and not prompt.head.is_stored
        if call.endpoint == COMPLETIONS or (is_short and play.key is True):
            return call
        prompt.key_field = name
        prompt.key = prompt.stable_key if play.key is True else str(play.key)
        limit = play.requests_per_key_per_minute or rules.requests_per_key_per_minute
        if limit is not None:
            prompt.shards = self.shards(call.origin, prompt.key, call.issued_ns, limit)
            if prompt.shards > 1:
                session = session_of(call.endpoint, body, call.placements)
                prompt.key = self.key(prompt.key, session, prompt.shards)
        return call.with_fields({name: prompt.key}, (f"PromptCache added {name}",), (name,))

    def shards(self, origin: str, key: str, now_ns: int, limit_per_minute: float) -> int:
        """Count a call of this key and return over how many keys its calls are spread.

        `limit_per_minute` is how many requests the provider at `origin` sends to one machine for one key and prefix.
        """
        with self._lock:
            rate = self._rates.pop((origin, key), None) or _KeyRate()
            self._rates[origin, key] = rate
            if len(self._rates) > _MAX_RATES:
                del self._rates[next(iter(self._rates))]
            return rate.count(now_ns, limit_per_minute)

    def key(self, key: str, session: int, shards: int) -> str:
        """Return the key of a session: the given one for the first shard, else with the shard's number behind it."""
        with self._lock:
            place = self._places.pop((key, session), shards)
            if place >= shards:
                place = jump(session, shards)
            self._places[key, session] = place
            if len(self._places) > _MAX_SESSIONS:
                del self._places[next(iter(self._places))]
        return f"{key}-{place}" if place else key


def jump(number: int, shards: int) -> int:
    """Return the shard, from 0, of a 64-bit number: jump consistent hashing, Lamping and Veach 2014."""
    number &= 0xFFFF_FFFF_FFFF_FFFF
    chosen, candidate = 0, 0
    while candidate < shards:
        chosen = candidate
        number = (number * 2_862_933_555_777_941_757 + 1) & 0xFFFF_FFFF_FFFF_FFFF
        candidate = int((chosen + 1) * ((1 << 31) / ((number >> 33) + 1)))
    return chosen
