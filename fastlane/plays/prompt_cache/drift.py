"""Why a prompt was not read from the cache: compares it with earlier prompts, when it is read.

A conversation that goes on has drifted if something before its end differs. Another question after the same system
prompt, an edited last message, or another agent's prompt has not: nothing was to be had in common.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from fastlane.protocol.prompt_marks import LEADING_ROLES
from fastlane.records.plays import Drift, DriftKind

if TYPE_CHECKING:
    from .history import CacheRules, PromptHistory, PromptLine, SentPrompt

# If the size of the blocks is not known: OpenAI's (https://developers.openai.com/cookbook/examples/prompt_caching_201).
_USUAL_BLOCK = 128
# Fewer cached tokens than expected mean something if more than this is missing: by so much, estimates are wrong. Tools
# and prose have as many tokens per byte within the second share.
_SLACK_BLOCKS, _SLACK_SHARE, _LOOSE_SHARE = 2, 0.1, 0.25
# Two segments of which this share is the same are one, edited.
_SIMILAR = 0.5
# Prompts that have this share of what the most alike has of a conversation are of that conversation too.
_SAME_CONVERSATION = 0.5
# What has fewer bytes is said in many conversations: "yes", "continue".
_TELLING = 64
# A message was shortened, and not edited, if it was so long and has become a stub, or has lost its end.
_SHORTENED_BYTES, _STUB_SHARE, _BEGINNING_SHARE = 160, 0.3, 0.7
# The same content, written otherwise.
_REWRITTEN: Final = ("reordered_keys", "reordered_tools", "whitespace")
_QUOTED_BEFORE, _QUOTED_AFTER = 40, 120

HEAD_PARTS: Final = ("tools", "functions", "response_format", "text.format", "instructions")
_ITEM_PARTS: Final = ("messages", "input", "prompt")
_MESSAGES: Final = (*_ITEM_PARTS, "instructions", "system")


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


Earlier = tuple["PromptSegments", "PromptLine", int]
"""An earlier prompt, the line that it is part of, and when it was used."""

_NO_RANK: Final[Any] = (False, 0, 0, None, None)


def find_drift(history: PromptHistory, prompt: SentPrompt) -> Drift | None:
    """Return the drift of a settled prompt; None if nothing was lost, or if the prompts are no longer kept.

    If the comparison finds nothing, the provider's own reason is all that is known.
    """
    drift, line = None, prompt.line
    new = None if line is None else segments_of(line, prompt.count)
    if line is not None and new is not None:
        earlier = [
            (segments, other, used_ns)
            for other, count, used_ns in history.earlier(line.head, prompt.answered_before)
            if (segments := segments_of(other, count)) is not None
        ]
        # What has expired is not lost by a difference.
        oldest_ns = prompt.sent_ns - prompt.head.rules.lifetime_ns
        fresh = [one for one in earlier if one[2] >= oldest_ns]
        found = find_departure(new, line, prompt.known_size, fresh)
        if found is not None:
            drift = _broken(prompt, found)
        elif prompt.keeps:
            alike = [segments for segments, other, _ in earlier if _is_kept_with(other, line)]
            common = max((new.size(0, in_common(segments, new)) for segments in alike), default=0)
            drift = _unread(prompt, min(common, prompt.size))
    if prompt.reason is None:
        return drift
    if drift is not None:
        return replace(drift, provider_reason=prompt.reason)
    # It speaks of the earlier response that it was asked to compare with: the prompt may be known of another.
    whole, cached = prompt.head.rules.kept(prompt.tokens), prompt.cached or 0
    if cached and cached >= whole - _slack(whole, prompt.head.rules):
        return None
    lost = max(0, prompt.tokens_of(prompt.known_size) - cached)
    offset = min(cached, prompt.tokens)
    return Drift(kind="changed", path=None, token_offset=offset, tokens_lost=lost, provider_reason=prompt.reason)


def _broken(prompt: SentPrompt, departure: Difference) -> Drift | None:
    """Return the drift that a difference is, unless the provider has read beyond it."""
    rules, cached = prompt.head.rules, prompt.cached or 0
    offset = prompt.tokens_of(departure.before_size)
    reusable = prompt.tokens_of(prompt.known_size) if prompt.known_size else 0
    reusable = reusable if departure.is_apart else max(reusable, offset)
    unbroken = prompt.tokens_of(departure.before_size + departure.lost_size)
    lost, whole = unbroken - max(reusable, offset), rules.kept(unbroken)
    if lost <= 0:
        return None
    # If two models are asked the same, turn by turn, each keeps all but what the other was asked just now.
    if departure.is_apart and rules.kept(reusable) and lost <= _slack(unbroken, rules):
        return None
    if cached > reusable + (rules.block_tokens or _USUAL_BLOCK) and cached >= (whole + rules.kept(reusable)) / 2:
        return None
    before, after = departure.quoted()
    return Drift(
        kind=departure.kind,
        path=departure.path,
        character=departure.character,
        token_offset=offset,
        tokens_lost=lost,
        before=before,
        after=after,
    )


def _unread(prompt: SentPrompt, size: int) -> Drift | None:
    """Return the drift of an unbroken prefix of `size` bytes that was not read: it has expired, or was evicted."""
    rules, cached = prompt.head.rules, prompt.cached
    fresh = rules.kept(prompt.tokens_of(prompt.known_size)) if prompt.known_size else 0
    should = rules.kept(prompt.tokens_of(size)) if size > prompt.known_size else fresh
    # If the provider does not report what it has read, it is known all the same that the time is over.
    found = fresh if cached is None else cached
    share = _SLACK_SHARE if prompt.known_tokens is not None else _LOOSE_SHARE
    if should - found <= _slack(should, rules, share):
        return None
    kind: DriftKind = "expired" if cached is None or fresh < should else "evicted"
    return Drift(kind=kind, path=None, token_offset=found, tokens_lost=should - found)


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


def segments_of(line: PromptLine, count: int) -> PromptSegments | None:
    """Return a line's prompt with so many messages; None if its text is not kept."""
    chunks, known = line.chunks, line.segments
    if not chunks:
        return None
    if known is None or known[0] is not chunks:
        rows: list[Segment] = []
        for part, value in parsed(line.head.text).items():
            # A name's bytes belong to the value that follows it, so that sizes add up to those of the whole prompt.
            _add(rows, part, value, len(part) + 4)
        heads = len(rows)
        _add(rows, line.head.items_name, parsed(b"".join(chunks) + line.end), 0)
        known = line.segments = chunks, PromptSegments(rows, heads)
    whole: PromptSegments = known[1]
    rest = whole.rows[: whole.heads + count]
    return whole if len(rest) == len(whole.rows) else PromptSegments(rest, whole.heads)


def _add(rows: list[Segment], part: str, value: Any, name_size: int) -> None:
    is_list = isinstance(value, list)
    for index, member in enumerate(value if is_list else [value]):
        written = json_of(member)
        size = len(written) + 1 + (0 if index else name_size)
        rows.append(Segment(part, f"{part}[{index}]" if is_list else part, member, hash(written), size))


class Difference(NamedTuple):
    """The first place where two prompts, or two values in them, differ."""

    kind: DriftKind
    path: str
    before: Any = None
    """The value in the earlier prompt."""
    after: Any = None
    """The value in this one."""
    character: int | None = None
    """Characters of the value before the difference; None if it is not a text."""
    before_size: int = 0
    """Bytes of the prompt before the difference."""
    lost_size: int = 0
    """Bytes that would have been in common but for it."""
    is_apart: bool = False
    """Whether the provider keeps the earlier prompt apart from this one."""

    def quoted(self) -> tuple[str | None, str | None]:
        """Return the texts around the difference."""
        start = max(0, (self.character or 0) - _QUOTED_BEFORE)
        texts = [value if value is None or isinstance(value, str) else _written(value) for value in self[2:4]]
        before, after = (text and text[start : start + _QUOTED_BEFORE + _QUOTED_AFTER] for text in texts)
        return before, after


# Which earlier prompt is departed from


def find_departure(
    new: PromptSegments, line: PromptLine, known_size: int, earlier: Sequence[Earlier]
) -> Difference | None:
    """Find what broke the beginning of a prompt, of which `known_size` bytes were sent before; None for nothing."""
    shared = [new.spoken.keys() & segments.spoken.keys() for segments, _, _ in earlier]
    # Those of the same conversation first, then those that begin alike for longest, then the latest.
    most = _SAME_CONVERSATION * max(map(len, shared), default=0)
    ranked = [
        (
            len(each) >= most and sum(map(new.spoken.__getitem__, each)) >= _TELLING,
            in_common(segments, new),
            used_ns,
            segments,
            then,
        )
        for each, (segments, then, used_ns) in zip(shared, earlier, strict=True)
    ]
    ranked.sort(key=itemgetter(0, 1, 2), reverse=True)
    parameters = line.head.parameters
    found = None
    is_same, _, _, old, _ = next((rank for rank in ranked if rank[-1].head.parameters == parameters), _NO_RANK)
    if is_same:
        found = _departure(old, new)
    elif old is not None and known_size < new.size(0, new.leading) - 1:
        # Another conversation: of its beginning alone.
        before, after = (PromptSegments(one.rows[: one.leading], one.heads) for one in (old, new))
        found = _difference(before, after) if _beginning_share(before, after) >= _SIMILAR else None
    if found is not None and found.before_size + found.lost_size <= known_size:
        found = None
    # The same prompt under another model, parameter or key.
    apart = [rank for rank in ranked if rank[1] > new.leading and not _is_kept_with(rank[-1], line)]
    _, count, _, _, then = max(apart, key=itemgetter(2, 1), default=_NO_RANK)
    size = new.size(0, count)
    if then is not None and size > max(known_size + 1, found.before_size + found.lost_size if found else 0):
        others = then.head.parameters
        path = next((name for name in {**parameters, **others} if parameters.get(name) != others.get(name)), None)
        # The facts of a provider behind a proxy are known from its first answer on, and a key is added then.
        if path is not None or None not in (line.key, then.key):
            kind: DriftKind = "changed_model" if path == "model" else "changed_parameter"
            return Difference(kind, path or "prompt_cache_key", lost_size=size, is_apart=True)
    return found


def _is_kept_with(one: PromptLine, other: PromptLine) -> bool:
    """Return whether the provider keeps two prompts in one cache."""
    return (one.head.parameters, one.key) == (other.head.parameters, other.key)


def in_common(old: PromptSegments, new: PromptSegments) -> int:
    """Return how many segments two prompts begin with alike."""
    return common_length(old.digests, new.digests)


def _departure(old: PromptSegments, new: PromptSegments) -> Difference | None:
    """Find where a prompt departs from an earlier one of the same conversation."""
    at = in_common(old, new)
    if at == min(len(old.rows), len(new.rows)):
        return None
    both = set(old.digests[at:]) & set(new.digests[at:])
    is_alike = similarity(old.rows[at].value, new.rows[at].value) >= _SIMILAR
    found = _difference(old, new)
    if at < min(old.leading, new.leading):
        # The same text edited, or before the same messages.
        return found if is_alike or len(both) > 1 or (found is not None and found.kind in _REWRITTEN) else None
    # What was said last is said again. If not, the rest may be examples, other ones in each call.
    is_recalled = old.digests[-1] in both and len(both) > 1
    return found if is_recalled or (is_alike and at < len(new.rows) - 1) else None


def _beginning_share(old: PromptSegments, new: PromptSegments) -> float:
    """Return how much of two leading parts is the same: of the instructions if there are any, else of the tools."""
    rows = [[row for row in one.rows if row.part in _MESSAGES] or one.rows for one in (old, new)]
    texts = ["".join(_written(row.value) for row in each) for each in rows]
    return similarity(*texts) if all(texts) else 0.0


def similarity(old: Any, new: Any) -> float:
    """Return how much of the longer of two values is in both, in rows of four words: 0 to 1. Short ones by the word."""
    one, other = (value if isinstance(value, str) else _written(value) for value in (old, new))
    words = [re.findall(r"\w+", text) for text in (one, other)]
    width = 4 if min(map(len, words)) >= 16 else 1
    before, after = (Counter(zip(*(row[start:] for start in range(width)), strict=False)) for row in words)
    longer = max(before.total(), after.total())
    return (before & after).total() / longer if longer else 1.0


# What the difference is


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
    size, common_size = new.size(0, at), min(old.size(), new.size())
    if row is None or then is None or what != "replace" or kind in ("reordered_tools", "compacted"):
        before = None if then is None or (kind, what) == ("changed_tool", "insert") else then.value
        after = None if row is None or (kind, what) == ("changed_tool", "delete") else row.value
        path = f"{part}[{common}]" if row is None else row.path
        return Difference(kind, path, before, after, None, size, max(0, common_size - size))
    edit = _edit(then.value, row.value, row.path) or Difference("changed", row.path)
    if edit.kind != "changed" and (kind == "changed" or edit.character is not None or edit.kind == "reordered_keys"):
        kind = edit.kind
    elif is_within and _is_shortened(edit):
        kind = "compacted"
    size += min(row.size, common_length(json_of(then.value), json_of(row.value)))
    return edit._replace(kind=kind, before_size=size, lost_size=max(0, common_size - size))


def _is_shortened(edit: Difference) -> bool:
    before, after = (len(text) if isinstance(text, str) else 0 for text in (edit.before, edit.after))
    keeps_beginning = edit.character is not None and edit.character >= after / 2
    return before >= _SHORTENED_BYTES and after <= (_BEGINNING_SHARE if keeps_beginning else _STUB_SHARE) * before


def _edit(old: Any, new: Any, path: str) -> Difference | None:
    """Find the first difference between two JSON values; None if they are written alike."""
    if isinstance(old, str) and isinstance(new, str):
        if old == new:
            return None
        at = common_length(old, new)
        from .volatile import kind_of_change  # here: its patterns take 60 ms to compile

        kind = kind_of_change(old, new, at) or "changed"
        if kind != "whitespace" and old[:1] in ("{", "[") and _is_same_json(old, new):
            kind = "reordered_keys"
        return Difference(kind, path, old, new, at)
    if isinstance(old, dict) and isinstance(new, dict):
        for mine, theirs in zip(old, new, strict=False):
            if mine != theirs:
                if theirs in old and mine in new:
                    return Difference("reordered_keys", path, old, new)
                name = mine if theirs in old else theirs
                return Difference("changed", f"{path}.{name}", old.get(name), new.get(name))
            if (found := _edit(old[mine], new[mine], f"{path}.{mine}")) is not None:
                return found
        more = [*new][len(old) :] or [*old][len(new) :]
        return Difference("changed", f"{path}.{more[0]}", old.get(more[0]), new.get(more[0])) if more else None
    if isinstance(old, list) and isinstance(new, list):
        one, other = [*map(json_of, old)], [*map(json_of, new)]
        if one != other and sorted(one) == sorted(other):
            return Difference("reordered_keys", path, old, new)
        for index, (mine, theirs) in enumerate(zip(old, new, strict=False)):
            if (found := _edit(mine, theirs, f"{path}[{index}]")) is not None:
                return found
        return None if len(old) == len(new) else Difference("changed", f"{path}[{min(len(old), len(new))}]")
    if json_of(old) == json_of(new):
        return None
    from .volatile import kind_of_number

    return Difference(kind_of_number(str(old), str(new)) or "changed", path, old, new)


def _is_same_json(old: str, new: str) -> bool:
    try:
        return bool(orjson.loads(old) == orjson.loads(new))
    except ValueError:
        return False


def _written(value: Any) -> str:
    return json_of(value).decode()


def json_of(value: Any) -> bytes:
    """Return a value as JSON. What is no JSON is recognised by its type alone: its `repr` may hold a secret."""
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
