"""Why a prompt was not read from the cache: compares it with earlier prompts, once somebody looks.

A conversation that goes on has drifted if something before its end differs. Another question after the same system
prompt, an edited last message, or another agent's prompt has not: nothing was to be had in common.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from fastlane.protocol.prompt_marks import LEADING_ROLES
from fastlane.records.plays import Drift, DriftKind

from .volatile import kind_of_change, kind_of_number

if TYPE_CHECKING:
    from .history import CacheRules, PromptHistory, PromptLine, SentPrompt

# If the size of the blocks is not known: OpenAI's (https://developers.openai.com/cookbook/examples/prompt_caching_201).
_USUAL_BLOCK = 128
# Fewer cached tokens than expected mean something if more than this is missing: by so much, estimates are wrong.
_SLACK_BLOCKS, _SLACK_SHARE = 2, 0.1
# If the beginning was never counted by itself: tools and prose have as many tokens per byte within this.
_LOOSE_SHARE = 0.25
# Two segments of which this share is the same are one, edited; with the second share there is no need to look further.
_SIMILAR, _NEARLY = 0.5, 0.9
# A conversation of whose rest this share comes later again is the same one.
_SHARED = 0.3
# Prompts that have this share of what the most alike has of a conversation are of that conversation too.
_SAME_CONVERSATION = 0.5
# What has fewer bytes is said in many conversations: "yes", "continue".
_TELLING = 64
# Earlier prompts that are compared with where none has a message in common with the new one.
_MAX_COMPARED = 5
# A message was shortened, and not edited, if it was so long and has become a stub, or has lost its end.
_SHORTENED_BYTES, _STUB_SHARE, _BEGINNING_SHARE = 160, 0.3, 0.7
# The same content, written otherwise.
_REWRITTEN: Final = ("reordered_keys", "reordered_tools", "whitespace")
_QUOTED_BEFORE, _QUOTED_AFTER = 40, 120

HEAD_PARTS: Final = ("tools", "functions", "response_format", "text.format", "instructions")
_ITEM_PARTS: Final = ("messages", "input", "prompt")
_MESSAGES: Final = (*_ITEM_PARTS, "instructions", "system")
# The provider's own word: its kind and path in ours, and how the paths begin of a finer finding that agrees with it.
_REASONS: Final[Mapping[str, tuple[DriftKind, str | None, tuple[str, ...]]]] = {
    # OpenAI: `PromptCacheDiagnosticsCacheMiss.reason` in openai/types/responses/response.py, 2.47.
    "model_changed": ("changed_model", "model", ("model",)),
    "prompt_cache_key_changed": ("changed_parameter", "prompt_cache_key", ("prompt_cache_key",)),
    "tools_changed": ("changed_tool", "tools", ("tools",)),
    "text_format_changed": ("changed", "text.format", ("text.format", "response_format")),
    "reasoning_effort_changed": ("changed_parameter", "reasoning.effort", ("reasoning",)),
    "verbosity_changed": ("changed_parameter", "text.verbosity", ("text.verbosity", "verbosity")),
    "service_tier_changed": ("changed_parameter", "service_tier", ("service_tier",)),
    "context_compacted": ("compacted", None, ()),
    "input_changed": ("changed", None, (*_MESSAGES, "tools", "text.format")),
    # Anthropic: `cache_miss_reason` of its Messages API, anthropic 2.10.
    "system_changed": ("changed", "system", ("messages", "instructions", "system", "input")),
    "messages_changed": ("changed", "messages", _MESSAGES),
}


def common_length(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return how many characters, bytes or members two sequences have in common at the front."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def find_drift(history: PromptHistory, prompt: SentPrompt) -> Drift | None:
    """Return the drift of a settled prompt; None if nothing was lost, or if the prompts are no longer kept."""
    line = prompt.line
    new = None if line is None else segments_of(line, line.text, prompt.count)
    found = None
    if line is not None and new is not None:
        earlier = [
            Earlier(segments, other.head.parameters, other.key, used_ns)
            for other, text, count, used_ns in history.earlier(line.head, prompt.answered_before)
            # What has expired is not lost by a difference.
            if prompt.sent_ns - used_ns <= prompt.head.rules.lifetime_ns
            and (segments := segments_of(other, text, count)) is not None
        ]
        found = find_departure(new, line.head.parameters, prompt.key, prompt.known.size, earlier)
    if found is not None:
        return _with_reason(prompt, _broken(prompt, found, history.quote))
    return _with_reason(prompt, _lost(prompt) if prompt.keeps else None)


def _broken(prompt: SentPrompt, departure: Difference, quote: bool) -> Drift | None:
    """Return the drift that a difference is, unless the provider has read beyond it."""
    scale, rules, cached = prompt.scale, prompt.head.rules, prompt.cached
    offset = scale.at(departure.before_size)
    fresh = scale.at(prompt.known.fresh_size)
    reusable = fresh if departure.is_apart else max(fresh, offset)
    unbroken = scale.at(departure.before_size + departure.lost_size)
    lost = unbroken - max(reusable, offset)
    broken, whole = rules.kept(max(reusable, offset)), rules.kept(unbroken)
    if lost <= 0:
        return None
    if departure.is_apart and broken and lost <= _slack(unbroken, rules):
        # If two models are asked the same, turn by turn, each keeps all but what the other was asked just now.
        return None
    if (
        cached
        and cached > max(reusable, offset) + (rules.block_tokens or _USUAL_BLOCK)
        and cached >= whole - min(_slack(whole, rules), (whole - rules.kept(reusable)) / 2)
    ):
        return None
    before, after = departure.quoted() if quote else (None, None)
    return Drift(
        kind=departure.kind,
        path=departure.path,
        character=departure.character,
        token_offset=offset,
        tokens_lost=lost,
        before=before,
        after=after,
    )


def _lost(prompt: SentPrompt) -> Drift | None:
    """Return the drift of an unbroken beginning that was not read: it has expired, or was given up early."""
    scale, rules, cached = prompt.scale, prompt.head.rules, prompt.cached
    should, fresh = rules.kept(scale.at(prompt.known.size)), rules.kept(scale.at(prompt.known.fresh_size))
    # If the provider does not say what it has read, it is known all the same that the time is over.
    found, is_old = (fresh, True) if cached is None else (cached, fresh < should)
    share = _SLACK_SHARE if prompt.known.size == scale.known_size else _LOOSE_SHARE
    if should - found <= _slack(should, rules, share):
        return None
    kind: DriftKind = "expired" if is_old else "evicted"
    return Drift(kind=kind, path=None, token_offset=found, tokens_lost=should - found)


def _with_reason(prompt: SentPrompt, drift: Drift | None) -> Drift | None:
    """Return the drift with the provider's own word for it, which wins if it says something else."""
    reason, cached, rules = prompt.reason, prompt.cached or 0, prompt.head.rules
    kind, path, beginnings = _REASONS.get(reason or "", (None, None, ()))
    if reason is None:
        return drift
    if drift is None:
        whole = rules.kept(prompt.scale.tokens)
        # It speaks of the earlier response that it was asked to compare with: the prompt may be known of another.
        if kind is None or (cached and cached >= whole - _slack(whole, rules)):
            return None
        lost = max(0, prompt.scale.at(prompt.known.fresh_size) - cached)
        offset = min(cached, prompt.scale.tokens)
        return Drift(kind=kind, path=path, token_offset=offset, tokens_lost=lost, provider_reason=reason)
    drift = replace(drift, provider_reason=reason)
    if kind is None or kind == drift.kind or (drift.path is not None and drift.path.startswith(beginnings)):
        return drift
    return replace(drift, kind=kind, path=path or drift.path, character=None)


def _slack(tokens: int, rules: CacheRules, share: float = _SLACK_SHARE) -> float:
    return max(_SLACK_BLOCKS * (rules.block_tokens or _USUAL_BLOCK), share * tokens)


class Segment(NamedTuple):
    """One tool, format or message of a prompt."""

    part: str
    """The field of the body that it stands in."""
    path: str
    value: Any
    digest: int
    """A hash of its JSON."""
    size: int
    """Bytes of its JSON."""


class PromptSegments:
    """A prompt as a row of segments in reading order: tools, formats, instructions, messages."""

    def __init__(self, rows: Sequence[Segment], heads: int) -> None:
        """`heads`: how many segments stand before the messages."""
        self.rows = rows
        self.heads = heads
        self.digests = [row.digest for row in rows]
        self.leading = next((at for at, row in enumerate(rows) if not _leads(row)), len(rows))
        """How many segments stand before the first message that is not a leading system or developer message."""
        self.spoken = {row.digest: row.size for row in rows[self.leading :]}
        """The messages behind these: their bytes by their hashes."""
        self._ends = list(accumulate((row.size for row in rows), initial=0))

    def size(self, start: int = 0, stop: int | None = None) -> int:
        """Return the bytes of some segments."""
        return self._ends[len(self.rows) if stop is None else stop] - self._ends[start]


def _leads(row: Segment) -> bool:
    is_message = row.part in _ITEM_PARTS
    return not is_message or (isinstance(row.value, dict) and row.value.get("role") in LEADING_ROLES)


def segments_of(line: PromptLine, text: bytes, count: int) -> PromptSegments | None:
    """Return a line's prompt with so many messages; None if its text is not kept."""
    if not text:
        return None
    known = line.segments
    if known is None or known[0] is not text:
        rows: list[Segment] = []
        for part, value in parsed(line.head.text).items():
            # The bytes of a name belong to what stands behind it, so that sizes add up to those of the whole prompt.
            _add(rows, part, value, len(part) + 4)
        heads = len(rows)
        items = text[len(line.head.text) :]
        if items:
            closing = {b"[": b"]", b'"': b'"', b"{": b"}"}.get(items[:1], b"")
            _add(rows, line.head.items_name, parsed(items + closing), 0)
        known = line.segments = text, PromptSegments(rows, heads)
    whole: PromptSegments = known[1]
    rest = whole.rows[: whole.heads + count]
    return whole if len(rest) == len(whole.rows) else PromptSegments(rest, whole.heads)


def _add(rows: list[Segment], part: str, value: Any, name_size: int) -> None:
    is_list = isinstance(value, list)
    for index, member in enumerate(value if is_list else [value]):
        written = json_of(member)
        size = len(written) + 1 + (0 if index else name_size)
        rows.append(Segment(part, f"{part}[{index}]" if is_list else part, member, hash(written), size))


class Earlier(NamedTuple):
    """An earlier prompt."""

    segments: PromptSegments
    parameters: Mapping[str, Any]
    """What the provider keeps caches apart by, without the cache key."""
    key: str | None
    used_ns: int


class Difference(NamedTuple):
    """The first place where two prompts differ."""

    kind: DriftKind
    path: str
    character: int | None
    """Characters of the value before the difference; None if it is not a text."""
    before_size: int
    """Bytes of the prompt before the difference."""
    lost_size: int
    """Bytes that would have been in common but for it."""
    before: Any = None
    """The value in the earlier prompt."""
    after: Any = None
    """The value in this one."""
    is_apart: bool = False
    """Whether the provider keeps the earlier prompt apart from this one."""

    def quoted(self) -> tuple[str | None, str | None]:
        """Return the texts around the difference."""
        start = max(0, (self.character or 0) - _QUOTED_BEFORE)
        texts = [value if value is None or isinstance(value, str) else _written(value) for value in self[5:7]]
        before, after = (text and text[start : start + _QUOTED_BEFORE + _QUOTED_AFTER] for text in texts)
        return before, after


# Which earlier prompt is departed from


def find_departure(
    new: PromptSegments, parameters: Mapping[str, Any], key: str | None, known_size: int, earlier: Sequence[Earlier]
) -> Difference | None:
    """Find what broke the beginning of a prompt, of which `known_size` bytes were sent before; None for nothing."""
    ranked = _ranked(new, earlier)
    alike = [one for one in ranked if one.parameters == parameters]
    found = None
    if alike and _says_as_much(alike[0].segments, new):
        found = _departure(alike[0].segments, new)
    elif known_size < new.size(0, new.leading) - 1:
        found = _departure_of_beginning(alike, new)
    if found is not None and found.before_size + found.lost_size <= known_size:
        found = None
    apart = _kept_apart(new, parameters, key, known_size, ranked)
    if apart is not None and (found is None or apart.lost_size > found.before_size + found.lost_size):
        return apart
    return found


def in_common(old: PromptSegments, new: PromptSegments) -> int:
    """Return how many segments two prompts begin with alike."""
    return common_length(old.digests, new.digests)


def _ranked(new: PromptSegments, earlier: Sequence[Earlier]) -> list[Earlier]:
    """Return earlier prompts: those of the same conversation first, then those that begin alike for longest.

    Of the same conversation are those that have about as much of what was said in it as the one that has the most.
    """
    said = [new.spoken.keys() & one.segments.spoken.keys() for one in earlier]
    sizes = [sum(new.spoken[digest] for digest in shared) if shared else 0 for shared in said]
    enough = max(_TELLING, _SAME_CONVERSATION * max(sizes, default=0))
    most = _SAME_CONVERSATION * max(map(len, said), default=0)
    ranks = [
        (size >= enough and len(shared) >= most, in_common(one.segments, new), one.used_ns, number)
        for number, (one, shared, size) in enumerate(zip(earlier, said, sizes, strict=True))
    ]
    return [earlier[rank[-1]] for rank in sorted(ranks, reverse=True)]


def _says_as_much(old: PromptSegments, new: PromptSegments) -> bool:
    """Whether two prompts have anything in common that is said in one conversation alone."""
    shared = old.spoken.keys() & new.spoken.keys()
    return len(shared) > 1 or sum(new.spoken[digest] for digest in shared) >= _TELLING


def _kept_apart(
    new: PromptSegments, parameters: Mapping[str, Any], key: str | None, known_size: int, ranked: Sequence[Earlier]
) -> Difference | None:
    """Find the same prompt under another model or parameter, the latest that is alike for about as long as any."""
    others = [(in_common(one.segments, new), one) for one in ranked if (one.parameters, one.key) != (parameters, key)]
    longest = max((count for count, _ in others), default=0)
    least = max(new.leading + 1, round(_SAME_CONVERSATION * longest))
    alike = [
        (one.used_ns, count, number)
        for number, (count, one) in enumerate(others)
        if count >= least and new.size(0, count) > known_size + 1
    ]
    if not alike:
        return None
    _, count, number = max(alike)
    then = others[number][1]
    names = [name for name in {**parameters, **then.parameters} if parameters.get(name) != then.parameters.get(name)]
    if not names and None in (key, then.key):
        # The facts of a provider behind another's address are known from its first answer on, and a key is added then.
        return None
    kind: DriftKind = "changed_model" if "model" in names else "changed_parameter"
    path = "model" if "model" in names else names[0] if names else "prompt_cache_key"
    return Difference(kind, path, None, 0, new.size(0, count), is_apart=True)


def _departure(old: PromptSegments, new: PromptSegments) -> Difference | None:
    """Find where a prompt departs from an earlier one that has messages of it."""
    at = in_common(old, new)
    if at == min(len(old.rows), len(new.rows)):
        return None
    both = set(old.digests[at:]) & set(new.digests[at:])
    shared = [row.size for row in new.rows[at:] if row.digest in both]
    is_telling = len(shared) > 1 or sum(shared) >= _TELLING
    leads = at < min(old.leading, new.leading)
    # A long text before the same short question is another prompt. Instructions are longer than what is said at first.
    rests = [one.size(at) - (one.rows[at].size if leads and one.digests[at] not in both else 0) for one in (old, new)]
    share = sum(shared) / max(1, min(rests))
    goes_on = len(new.rows) > len(old.rows)
    is_alike = _similar(old, at, new, at) >= _SIMILAR
    found = _difference(old, new)
    if leads:
        # Everything that was said is said again, or what differs is the same text edited. A short text may be too short
        # to have anything in common but for its digits.
        follows = share >= _SIMILAR and (len(shared) > 1 or goes_on)
        is_rewritten = found is not None and found.kind in _REWRITTEN
        return found if is_alike or (is_telling and (follows or is_rewritten)) else None
    # What was said last is said again, among other things: however much went before it, it is this conversation. If
    # not, the rest may be examples, or documents, of which each call has drawn others.
    is_recalled = old.digests[-1] in both and (len(shared) > 1 or (is_telling and share >= _SHARED))
    is_edited = is_alike and (is_telling or goes_on) and at < len(new.rows) - 1
    return found if is_recalled or is_edited else None


def _departure_of_beginning(alike: Sequence[Earlier], new: PromptSegments) -> Difference | None:
    """Find where the leading segments depart from the most similar ones of another conversation."""
    beginnings: dict[tuple[int, ...], PromptSegments] = {}
    for one in [*alike[:_MAX_COMPARED], *sorted(alike, key=lambda one: -one.used_ns)]:
        if len(beginnings) < _MAX_COMPARED:
            beginnings.setdefault(tuple(one.segments.digests[: one.segments.leading]), one.segments)
    shares = {_beginning_share(old, new): old for old in reversed(beginnings.values())}
    share = max(shares, default=0.0)
    return _difference(shares[share], new) if share >= _SIMILAR else None


def _beginning_share(old: PromptSegments, new: PromptSegments) -> float:
    """Return how much of two leading parts is the same: of the instructions if there are any, else of the tools."""
    leading = [one.rows[: one.leading] for one in (old, new)]
    texts = ["".join(_written(row.value) for row in rows if row.part in _MESSAGES) for rows in leading]
    if not any(texts):
        texts = ["".join(_written(row.value) for row in rows) for rows in leading]
    return similarity(*texts) if all(texts) else 0.0


def _similar(old: PromptSegments, old_at: int, new: PromptSegments, at: int) -> float:
    """Return how much of two segments is the same; 0 if it cannot be enough to matter."""
    if old_at >= len(old.rows) or at >= len(new.rows):
        return 0.0
    one, other = old.rows[old_at], new.rows[at]
    if min(one.size, other.size) < _SIMILAR * max(one.size, other.size):
        return 0.0
    return similarity(one.value, other.value)


def similarity(old: Any, new: Any) -> float:
    """Return how much of the longer of two values is in both, in rows of four words: 0 to 1. Short ones by the word."""
    one, other = (value if isinstance(value, str) else _written(value) for value in (old, new))
    front = common_length(one, other)
    alike = front + common_length(one[front:][::-1], other[front:][::-1])
    longest = max(len(one), len(other), 1)
    # One edited place, as most are: there is no need to look at the words.
    if alike >= _NEARLY * longest:
        return alike / longest
    words = [re.findall(r"\w+", text) for text in (one, other)]
    width = 4 if min(map(len, words)) >= 16 else 1
    before, after = (Counter(zip(*(row[start:] for start in range(width)), strict=False)) for row in words)
    longer = max(before.total(), after.total())
    return (before & after).total() / longer if longer else 1.0


# What the difference is


class _Edit(NamedTuple):
    """The first difference between two values."""

    kind: DriftKind | None
    """None: it was edited, and nothing says how."""
    path: str
    """From the value on: ".function.description"."""
    before: Any = None
    after: Any = None
    character: int | None = None
    """Characters that two texts have in common at the front."""


def _difference(old: PromptSegments, new: PromptSegments) -> Difference | None:
    """Find the first difference between two prompts; None if one begins with all of the other."""
    at = old_at = 0
    for part in (*HEAD_PARTS, *_ITEM_PARTS):
        mine, theirs = ([row.digest for row in one.rows if row.part == part] for one in (new, old))
        common = common_length(theirs, mine)
        at, old_at = at + common, old_at + common
        if mine != theirs:
            break
    else:
        return None
    mine, theirs = mine[common:], theirs[common:]
    row = new.rows[at] if mine else None
    then = old.rows[old_at] if theirs else None
    if part in _ITEM_PARTS and (row is None or then is None):
        return None  # one just ends
    steps = SequenceMatcher(None, theirs, mine, autojunk=False).get_opcodes()
    what, _, gone, _, added = steps[0]
    is_within = part in _ITEM_PARTS and at >= new.leading and len(steps) > 1
    kind: DriftKind = "changed"
    if part in ("tools", "functions"):
        is_moved = row is not None and then is not None and row.digest in theirs and then.digest in mine
        kind = "reordered_tools" if is_moved or Counter(mine) == Counter(theirs) else "changed_tool"
    elif is_within and gone > added:
        # Messages are gone, or several became fewer: a summary stands in their place.
        kind = "compacted"
    size, lost = new.size(0, at), _common_behind(old, min(old_at, at), new, at)
    if row is None or then is None or what != "replace" or kind in ("reordered_tools", "compacted"):
        before = None if then is None or (kind, what) == ("changed_tool", "insert") else then.value
        after = None if row is None or (kind, what) == ("changed_tool", "delete") else row.value
        return Difference(kind, f"{part}[{common}]" if row is None else row.path, None, size, lost, before, after)
    edit = _edit(then.value, row.value) or _Edit(None, "")
    if edit.kind is not None and (kind == "changed" or edit.character is not None or edit.kind == "reordered_keys"):
        kind = edit.kind
    elif is_within and _is_shortened(edit):
        kind = "compacted"
    front = min(row.size, common_length(json_of(then.value), json_of(row.value)))
    share = 1.0 if kind in _REWRITTEN else similarity(then.value, row.value)
    lost = max(0, round(share * row.size) - front) + _common_behind(old, old_at + 1, new, at + 1)
    return Difference(kind, row.path + edit.path, edit.character, size + front, lost, edit.before, edit.after)


def _common_behind(old: PromptSegments, old_at: int, new: PromptSegments, at: int) -> int:
    """Return the bytes of the new prompt's segments from one on that the old one had as well, in whatever order."""
    left = Counter(map(_content, old.rows[old_at:]))
    total = 0
    for row in new.rows[at:]:
        content = _content(row)
        if left[content] > 0:
            left[content] -= 1
            total += row.size
    return total


def _content(row: Segment) -> int:
    """Return a hash that is the same for other orders of keys."""
    try:
        return hash(orjson.dumps(row.value, option=orjson.OPT_SORT_KEYS))
    except TypeError:
        return row.digest


def _is_shortened(edit: _Edit) -> bool:
    before, after = (len(text) if isinstance(text, str) else 0 for text in (edit.before, edit.after))
    keeps_beginning = edit.character is not None and edit.character >= after / 2
    return before >= _SHORTENED_BYTES and after <= (_BEGINNING_SHARE if keeps_beginning else _STUB_SHARE) * before


def _edit(old: Any, new: Any, path: str = "") -> _Edit | None:
    """Find the first difference between two JSON values; None if they are written alike."""
    if isinstance(old, str) and isinstance(new, str):
        if old == new:
            return None
        at = common_length(old, new)
        kind = kind_of_change(old, new, at)
        if kind != "whitespace" and old[:1] in ("{", "[") and _is_same_json(old, new):
            kind = "reordered_keys"
        return _Edit(kind, path, old, new, at)
    if isinstance(old, dict) and isinstance(new, dict):
        for mine, theirs in zip(old, new, strict=False):
            if mine != theirs:
                if theirs in old and mine in new:
                    return _Edit("reordered_keys", path, old, new)
                name = mine if theirs in old else theirs
                return _Edit(None, f"{path}.{name}", old.get(name), new.get(name))
            if (found := _edit(old[mine], new[mine], f"{path}.{mine}")) is not None:
                return found
        more = [*new][len(old) :] or [*old][len(new) :]
        return _Edit(None, f"{path}.{more[0]}", old.get(more[0]), new.get(more[0])) if more else None
    if isinstance(old, list) and isinstance(new, list):
        one, other = [*map(json_of, old)], [*map(json_of, new)]
        if one != other and sorted(one) == sorted(other):
            return _Edit("reordered_keys", path, old, new)
        for index, (mine, theirs) in enumerate(zip(old, new, strict=False)):
            if (found := _edit(mine, theirs, f"{path}[{index}]")) is not None:
                return found
        return None if len(old) == len(new) else _Edit(None, f"{path}[{min(len(old), len(new))}]")
    return None if json_of(old) == json_of(new) else _Edit(kind_of_number(str(old), str(new)), path, old, new)


def _is_same_json(old: str, new: str) -> bool:
    try:
        return bool(orjson.loads(old) == orjson.loads(new))
    except ValueError:
        return False


def _written(value: Any) -> str:
    return json_of(value).decode()


def json_of(value: Any) -> bytes:
    """Return a value as JSON. What is no JSON is told apart by its type alone: its `repr` may hold a secret."""
    try:
        return orjson.dumps(value)
    except TypeError:  # surrogates, integers beyond 64 bits, a caller's own classes
        try:
            return json.dumps(value, default=lambda other: type(other).__name__, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError):
            return json.dumps(type(value).__name__).encode()


def parsed(written: bytes) -> Any:
    """Return what `json_of` has written."""
    try:
        return orjson.loads(written)
    except ValueError:
        return json.loads(written)
