"""Cache keys: one name for all prompts that begin alike, spread over several where a provider limits calls per key."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from string import punctuation
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from fastlane._fork import new_lock
from fastlane.protocol.endpoints import CHAT, PROMPT_FIELDS, RESPONSES

from .drift import LEADING_ROLES, json_of
from .expectation import KEY_FIELD

if TYPE_CHECKING:
    from fastlane.engine.call import Call
    from fastlane.protocol.prompt_marks import Placement

    from .expectation import SentPrompt

# Providers begin to keep a prompt at 1,024 tokens (https://developers.openai.com/api/docs/guides/prompt-caching), about
# 4,096 characters. Prompts that are alike so far are worth one key, whatever follows: retrieved documents at the end of
# a system prompt must not make a key of their own for every call.
_HEAD_CHARACTERS: Final = 4_096
# Of a longer text no more is read, so that a key costs the same for every length.
_MAX_CHARACTERS: Final = 2 * _HEAD_CHARACTERS
# A first message as long as this (512 tokens) begins with what others may send too; behind the stable prefix that is
# enough to be kept.
_SESSION_CHARACTERS: Final = 2_048
# More than so many are forgotten, all at once: to find them again costs microseconds.
_MAX_KNOWN: Final = 8_192

# A word with a digit in it: times, dates, counters, UUIDs, hexadecimal and base64 values. The look-behind keeps it
# linear, since a word is tried from its beginning alone.
_WITH_DIGIT = re.compile(r"(?<![A-Za-z_+/=-])[A-Za-z_+/=-]*+\d[A-Za-z_\d+/=-]*+")
# What stands beside the digits of a date, with and without what follows it.
_NAMES: Final = (
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday Mon Tue Tues Wed Thu Thurs Fri Sat Sun January February "
    "March April May June July August September October November December Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov "
    "Dec AM PM A.M. P.M. UTC GMT"
)
_CALENDAR = frozenset(
    written + behind
    for name in _NAMES.split()
    for written in (name, name.lower(), name.upper())
    for behind in ("", ",", ".", ";")
)
_LONG_LINE: Final = 512
_SENTENCES = re.compile(r"(?<=[.!?;]) ")
_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"[^\W\d_]+")
# By these fields a body may say itself who is talking.
_NAMING_FIELDS: Final = frozenset({"conversation", "metadata", "previous_response_id", "safety_identifier", "user"})
# In metadata by these alone: it may hold anything else, and may change with each call.
_SESSION_NAMES: Final = ("session_id", "conversation_id", "thread_id", "chat_id")

# Digests by the process's own hashes, so that no text is kept. A lost update between threads does no harm.
_keys: dict[int, str] = {}
_lines: dict[int, tuple[bytes, int]] = {}
_tools: dict[int, bytes] = {}

_T = TypeVar("_T")
_Placements = Sequence["Placement | None"] | None


class CacheKeys:
    """Gives the calls of one play their cache keys. Threads may share it."""

    def __init__(self, key: bool | str, requests_per_key_per_minute: float | None, replicas: int) -> None:
        """See the settings of `PromptCache`."""
        self._key = key
        self._limit = requests_per_key_per_minute
        self._replicas = replicas
        self.clear()

    def clear(self) -> None:
        """Forget all rates."""
        self._spreader = KeySpreader(self._replicas)
        # By hashes of the prompts' beginnings, so that no text is kept.
        self._stable: dict[int, str] = {}
        self._sessions: dict[int, int] = {}

    def with_key(self, call: Call, prompt: SentPrompt) -> Call:
        """Return the call with a cache key if its provider takes one, and say on the prompt which one it has."""
        body, rules = call.body, prompt.head.rules
        name = rules.key_field
        given = body.get(KEY_FIELD)
        if given is None and name is not None:
            given = body.get(name)
        stable = self._stable.get(prompt.leading) if call.placements is None else None
        if stable is None:
            stable = stable_key(call.endpoint, body, call.placements)
            if call.placements is None:
                _remember(self._stable, prompt.leading, stable)
        own = given if isinstance(given, str) else None
        prompt.family = f"{hash((call.origin, stable, own)) & 0xFFFF_FFFF_FFFF_FFFF:016x}"
        prompt.key = prompt.base_key = own
        if name is None or given is not None or self._key is False or name in call.refused:
            return call
        if call.endpoint not in (CHAT, RESPONSES):
            return call
        if isinstance(self._key, str):
            prompt.key = self._key
        elif is_too_short(call.endpoint, body, prompt, rules.minimum_tokens):
            # Nothing of it is kept: it is sent as it was written.
            return call
        else:
            prompt.key = stable
        prompt.key_field, prompt.base_key = name, prompt.key
        limit = self._limit or rules.requests_per_key_per_minute
        if limit is not None:
            session = self._session(call, prompt)
            prompt.key, prompt.shards = self._spreader.shard(call.origin, prompt.key, session, call.issued_ns, limit)
        return call.replaced(
            body={**body, name: prompt.key},
            changes=(*call.changes, f"PromptCache added {name}"),
            optional=(*call.optional, name),
        )

    def _session(self, call: Call, prompt: SentPrompt) -> int:
        """Return the number of the conversation; if nothing but the first message tells it, it is known from before."""
        if call.placements is not None or not _NAMING_FIELDS.isdisjoint(call.body):
            return session_of(call.endpoint, call.body, call.placements)
        session = self._sessions.get(prompt.opening)
        if session is None:
            session = _remember(self._sessions, prompt.opening, session_of(call.endpoint, call.body))
        return session


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
    for item, is_stable in _items(endpoint, body, placements):
        if is_stable:
            texts.extend(_texts(item))
        elif placements is None:
            break
    is_declared = placements is not None and "stable" in placements
    model = str(body.get("model"))
    seen = hash((model, is_declared, json_of(tools), json_of(form), tuple(texts)))
    key = _keys.get(seen)
    if key is None:
        made = blake2b(digest_size=10)
        for digest in (
            model.encode("utf-8", "surrogatepass"),
            b"".join(sorted(map(_tool_digest, tools if isinstance(tools, list) else [tools]))),
            _tool_digest(form) if form else b"",
            *_head(texts, None if is_declared else _HEAD_CHARACTERS),
        ):
            made.update(len(digest).to_bytes(4, "big") + digest)
        key = _remember(_keys, seen, "fl-" + made.hexdigest())
    return key


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
    text = _beginning(first.get("content") if isinstance(first, Mapping) else first)
    if len(text) >= _SESSION_CHARACTERS:
        return _number("shared", text)
    return _number(str(user) if isinstance(user, str | int) else "", text)


def is_too_short(endpoint: str, body: Mapping[str, Any], prompt: SentPrompt, minimum_tokens: int | None) -> bool:
    """Return whether a prompt is as good as certain to have fewer tokens than its provider keeps prompts from.

    A token is seldom less than a byte. What has another size than its bytes say, such as an image or a tool of the
    provider's own, never is too short; nor is any prompt where the minimum is not known.
    """
    if minimum_tokens is None or prompt.size >= minimum_tokens or prompt.head.is_stored:
        return False
    tools, items = body.get("tools"), body.get(PROMPT_FIELDS.get(endpoint, "messages"))
    segments = [*(tools if isinstance(tools, list) else []), *(items if isinstance(items, list | tuple) else [])]
    return all(_says_its_size(segment) for segment in segments)


def _says_its_size(segment: Any) -> bool:
    """Whether a segment is text and functions."""
    if not isinstance(segment, Mapping):
        return isinstance(segment, str)
    kind = segment.get("type")
    if kind == "function" and "role" not in segment:
        return True
    content = segment.get("output" if kind == "function_call_output" else "content")
    parts = content if isinstance(content, list) else []
    return (
        kind in (None, "message", "function_call", "function_call_output")
        and isinstance(content, str | list | None)
        and all(
            isinstance(part, Mapping) and part.get("type") in ("text", "input_text", "output_text", "refusal")
            for part in parts
        )
    )


def _items(endpoint: str, body: Mapping[str, Any], placements: _Placements) -> Iterator[tuple[Any, bool]]:
    """Yield the messages, and whether they are stable; volatile ones are left out."""
    items = body.get(PROMPT_FIELDS.get(endpoint, "messages"))
    if not isinstance(items, list | tuple):
        items = () if items is None else (items,)
    is_declared = placements is not None and "stable" in placements
    leading = True
    for index, item in enumerate(items):
        placed = placements[index] if placements is not None and index < len(placements) else None
        leading = leading and isinstance(item, Mapping) and item.get("role") in LEADING_ROLES
        if placed is None:
            yield item, leading and not is_declared
        elif placed != "volatile":
            yield item, placed == "stable"


def _texts(item: Any) -> Iterator[str]:
    content = item.get("content") if isinstance(item, Mapping) else item
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            text = part.get("text") if isinstance(part, Mapping) else None
            yield text if isinstance(text, str) else json_of(part).decode()
    elif isinstance(item, Mapping):
        yield json_of(item).decode()


def _beginning(content: Any) -> str:
    """Return the first characters of what a message says: the same for a text as for its parts."""
    if isinstance(content, list):
        beginning = ""
        for part in content:
            beginning += _beginning(part)[: _SESSION_CHARACTERS - len(beginning)]
            if len(beginning) >= _SESSION_CHARACTERS:
                break
        return beginning
    if isinstance(content, Mapping):
        # A mark beside the text, which is there at one turn and not at the next, makes no other conversation.
        text = content.get("text")
        return _beginning(text if isinstance(text, str) else list(content.values()))
    return content[:_SESSION_CHARACTERS] if isinstance(content, str) else ""


def _head(texts: Sequence[str], limit: int | None) -> Iterator[bytes]:
    """Yield digests of the lines of some texts, up to so many characters of those that are not volatile."""
    left = math.inf if limit is None else limit
    for text in texts:
        for line in (text if limit is None else text[:_MAX_CHARACTERS]).splitlines():
            # Of a long line, only the sentence with a clock is new in each call.
            for sentence in _SENTENCES.split(line) if len(line) > _LONG_LINE else (line,):
                seen = hash((sentence, limit))
                known = _lines.get(seen)
                if known is None:
                    kept = _without_volatile(sentence)[:limit]
                    known = _remember(_lines, seen, (_digest(kept), len(kept)))
                if known[1]:
                    yield known[0]
                left -= known[1]
                if left <= 0:
                    return


def _without_volatile(text: str) -> str:
    words = text.split()
    if _DIGIT.search(text):
        # "10:04" and "1,000" leave other marks behind than "9:58:03" and "999": they go too.
        words = [
            _WITH_DIGIT.sub("", word).strip(punctuation) if not word.isalpha() and _DIGIT.search(word) else word
            for word in words
            if word not in _CALENDAR
        ]
    return " ".join(filter(None, words))


def _tool_digest(tool: Any) -> bytes:
    """Return the digest of a tool's or a schema's words, in whatever order its keys were written."""
    written = json_of(tool)
    seen = hash(written)
    known = _tools.get(seen)
    if known is None:
        words = sorted(_WORD.findall(_without_volatile(written.decode())))
        known = _remember(_tools, seen, _digest(" ".join(words)))
    return known


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _number(*texts: str) -> int:
    return int.from_bytes(_digest("\0".join(texts)), "big")


def _remember(known: dict[int, _T], seen: int, value: _T) -> _T:
    if len(known) >= _MAX_KNOWN:
        known.clear()
    known[seen] = value
    return value


# Key spreading

_NS: Final = 1_000_000_000
_MINUTE_NS: Final = 60 * _NS
_SLOT_NS: Final = 5 * _NS
_SLOTS: Final = 12
# Sessions differ in how often they call, and calls come in bursts: where the mean of the shards is half the limit, few
# shards pass it at any moment. A shard that is not needed costs one reading of the stable prefix, since each is called
# often enough to stay in the cache.
_FILL: Final = 0.5
# A burst is believed before a minute is over, but not before it has lasted this long.
_SHORTEST_NS: Final = 10 * _NS
# How long more shards are kept than are needed: providers forget a prefix after 5 to 10 minutes without use
# (https://developers.openai.com/api/docs/guides/prompt-caching), and until then a session finds it where it was.
_EPOCH_NS: Final = 300 * _NS
_MAX_SHARDS: Final = 4_096
_MAX_RATES: Final = 1_024
_MAX_SESSIONS: Final = 16_384
# Other numbers for the same session: the first leaves it as it is. Any bits will do.
_SALTS: Final = (0, 0x9E37_79B9_7F4A_7C15, 0xC2B2_AE3D_27D4_EB4F)


class KeyShard(NamedTuple):
    """Where one call goes."""

    key: str
    """The key to send: the family's own for the first shard, else with the shard's number behind it."""
    shards: int
    """Among how many keys the family's calls are spread."""


class _CallWindow:
    """How many calls came in the last minute, to 5 s, and whose were the latest."""

    __slots__ = ("_counts", "_slot", "_total", "changed_ns", "session")

    def __init__(self, now_ns: int, session: int = 0) -> None:
        self._counts = [0] * _SLOTS
        self._slot = now_ns // _SLOT_NS
        self._total = 0
        self.session = session
        self.changed_ns = now_ns - _MINUTE_NS
        """When it was last another session's."""

    def calls(self, now_ns: int) -> int:
        """Return the calls of the last minute."""
        # Threads may come in another order than that in which they read the clock.
        passed = now_ns // _SLOT_NS - self._slot
        if passed > 0:
            for behind in range(1, min(passed, _SLOTS) + 1):
                slot = (self._slot + behind) % _SLOTS
                self._total -= self._counts[slot]
                self._counts[slot] = 0
            self._slot += passed
        return self._total

    def add(self, now_ns: int, session: int = 0) -> int:
        """Count a call, and return how many the last minute has had with it."""
        total = self._total = self.calls(now_ns) + 1
        self._counts[self._slot % _SLOTS] += 1
        if session != self.session:
            self.session, self.changed_ns = session, now_ns
        return total

    def is_shared(self, session: int, now_ns: int) -> bool:
        """Whether the last minute had calls of other sessions."""
        return self.session != session or now_ns - self.changed_ns < _MINUTE_NS


class _KeyRate:
    """How often one key was called in the last minute, and how many shards it had of late."""

    __slots__ = ("_begun_ns", "_epoch", "_peak", "_peak_before", "_shards", "_window")

    def __init__(self, now_ns: int) -> None:
        self._window = _CallWindow(now_ns)
        self._shards: dict[int, _CallWindow] = {}
        self._begun_ns = now_ns
        self._epoch = now_ns // _EPOCH_NS
        self._peak = self._peak_before = 1

    def per_minute(self, now_ns: int, limit: float) -> float:
        """Count a call and return the rate: of the last minute, or of a burst above the limit that has just begun."""
        total = self._window.add(now_ns)
        if total == 1:
            self._begun_ns = now_ns
        since_ns = now_ns - self._begun_ns
        if total <= limit or since_ns >= _MINUTE_NS:
            return total
        return (total - 1) * _MINUTE_NS / max(since_ns, _SHORTEST_NS)

    def shards(self, needed: int, now_ns: int) -> int:
        """Return the number of shards: as many as are needed now, or were since the beginning of the last epoch."""
        epoch = now_ns // _EPOCH_NS
        if epoch > self._epoch:
            self._peak_before = self._peak if epoch == self._epoch + 1 else 1
            self._peak = 1
            self._epoch = epoch
            self._shards = {number: window for number, window in self._shards.items() if window.calls(now_ns)}
        self._peak = min(_MAX_SHARDS, max(self._peak, needed))
        return max(self._peak, self._peak_before)

    def place(self, session: int, shard: int, shards: int, limit: float, now_ns: int) -> int:
        """Count a call of a session that was in `shard`, and return the shard to which it goes.

        It stays while its shard takes more calls, or is full of its own; else it goes where it would be now, or to the
        emptier of two others.
        """
        if shard >= shards:
            shard = jump(session, shards)
        known = self._shards.get(shard)
        if shards > 1 and known is not None and known.calls(now_ns) >= limit and known.is_shared(session, now_ns):
            own, *others = (jump(session ^ salt, shards) for salt in _SALTS)
            if self._calls(own, now_ns) >= limit:
                own = min(others, key=lambda other: self._calls(other, now_ns))
            if self._calls(own, now_ns) < limit:
                shard = own
        window = self._shards.get(shard)
        if window is None:
            window = self._shards[shard] = _CallWindow(now_ns, session)
        window.add(now_ns, session)
        return shard

    def _calls(self, shard: int, now_ns: int) -> int:
        window = self._shards.get(shard)
        return window.calls(now_ns) if window is not None else 0


class KeySpreader:
    """Measures how often each cache key is used, and names the key for a call. Thread-safe; time comes in as `now_ns`.

    `replicas` is how many processes like this one share the traffic evenly. A key has one shard until its rate passes
    the limit, grows at once and shrinks after 5 to 10 minutes. Where a session goes follows from its number and the
    count of shards: jump consistent hashing, Lamping and Veach 2014, https://arxiv.org/abs/1406.2294. From then on it
    stays there, even if shards are added, until it finds the shard full. With replicas it always goes where its number
    leads, so that they agree; growing from n to m shards then moves the share 1 - n/m of the sessions.
    """

    def __init__(self, replicas: int = 1) -> None:
        self._replicas = replicas
        self._lock = new_lock()
        # In the order of their last use.
        self._rates: dict[tuple[str, str], _KeyRate] = {}
        self._places: dict[tuple[str, str, int], int] = {}

    def shard(self, origin: str, key: str, session: int, now_ns: int, limit_per_minute: float) -> KeyShard:
        """Count a call of this key and return where it goes.

        `limit_per_minute` is how many requests the provider at `origin` sends to one machine for one key and prefix.
        """
        with self._lock:
            rate = self._rates.pop((origin, key), None) or _KeyRate(now_ns)
            self._rates[origin, key] = rate
            per_minute = rate.per_minute(now_ns, limit_per_minute / self._replicas) * self._replicas
            needed = 1 if per_minute <= limit_per_minute else math.ceil(per_minute / (limit_per_minute * _FILL))
            shards = rate.shards(needed, now_ns)
            place = self._places.pop((origin, key, session), None)
            if place is None or self._replicas > 1:
                place = jump(session, shards) if shards > 1 else 0
            if self._replicas == 1:
                place = rate.place(session, place, shards, limit_per_minute, now_ns)
                self._places[origin, key, session] = place
            if len(self._rates) > _MAX_RATES:
                del self._rates[next(iter(self._rates))]
            if len(self._places) > _MAX_SESSIONS:
                del self._places[next(iter(self._places))]
        return KeyShard(f"{key}-{place}" if place else key, shards)


def jump(number: int, shards: int) -> int:
    """Return the shard, from 0, of a 64-bit number: jump consistent hashing, Lamping and Veach 2014."""
    number &= 0xFFFF_FFFF_FFFF_FFFF
    chosen, candidate = 0, 0
    while candidate < shards:
        chosen = candidate
        number = (number * 2_862_933_555_777_941_757 + 1) & 0xFFFF_FFFF_FFFF_FFFF
        candidate = int((chosen + 1) * ((1 << 31) / ((number >> 33) + 1)))
    return chosen
