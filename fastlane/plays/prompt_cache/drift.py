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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from fastlane.records.prompt import Drift, DriftKind

from .volatile import kind_of_change, kind_of_number

if TYPE_CHECKING:
    from .expectation import CacheRules, KnownBeginning, PromptHistory, PromptLine, SentPrompt, TokenScale

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

LEADING_ROLES: Final = ("system", "developer")
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


class DriftFinder:
    """Finds the drift of one prompt when it is called, once. It holds no text itself."""

    __slots__ = (
        "_answered_before", "_cached", "_count", "_drift", "_fresh_size", "_history", "_keeps", "_key", "_known_size",
        "_reason", "_rules", "_scale", "_sent_ns", "line",
    )  # fmt: skip

    def __init__(
        self,
        history: PromptHistory,
        prompt: SentPrompt,
        known: KnownBeginning,
        scale: TokenScale,
        *,
        keeps: bool,
        cached: int | None,
        reason: str | None,
    ) -> None:
        """`keeps`: whether the provider is known to keep the prompt; `reason`: its own word for why it read no more."""
        self._history: PromptHistory | None = history
        self._known_size, self._fresh_size = known.size, known.fresh_size
        self._scale = scale
        self._keeps = keeps
        self._cached = cached
        self._reason = reason
        self._rules = prompt.head.rules
        self._key = prompt.key
        self._count = prompt.count
        self._sent_ns = prompt.sent_ns
        self._answered_before = prompt.answered_before
        self.line: PromptLine | None = None
        """The line that the prompt has become part of."""
        self._drift: Drift | None = None

    def __call__(self) -> Drift | None:
        """Return the drift; None if nothing was lost, or if the prompts are no longer kept."""
        history, line = self._history, self.line
        if history is not None:
            self._drift = self._with_reason(self._found(history, line))
            self._history = self.line = None
        return self._drift

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the drift alone."""
        return _returned, (self(),)

    def _found(self, history: PromptHistory, line: PromptLine | None) -> Drift | None:
        new = None if line is None else segments_of(line, line.state.text, self._count)
        departure = None
        if line is not None and new is not None:
            lifetime_ns = None if self._rules.lifetime_s is None else self._rules.lifetime_s * 1e9
            earlier = [
                Earlier(segments, other.head.parameters, other.key, used_ns)
                for other, text, count, used_ns in history.earlier(line.head, self._answered_before)
                # What has expired is not lost by a difference.
                if (lifetime_ns is None or self._sent_ns - used_ns <= lifetime_ns)
                and (segments := segments_of(other, text, count)) is not None
            ]
            departure = find_departure(new, line.head.parameters, self._key, self._known_size, earlier)
        if departure is not None:
            return self._broken(departure, history.quote)
        return self._lost() if self._keeps else None

    def _broken(self, departure: Difference, quote: bool) -> Drift | None:
        """Return the drift that a difference is, unless the provider has read beyond it."""
        scale, rules, cached = self._scale, self._rules, self._cached
        offset = scale.at(departure.before_size)
        fresh = scale.at(self._fresh_size)
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

    def _lost(self) -> Drift | None:
        """Return the drift of an unbroken beginning that was not read: it has expired, or was given up early."""
        scale, rules, cached = self._scale, self._rules, self._cached
        should, fresh = rules.kept(scale.at(self._known_size)), rules.kept(scale.at(self._fresh_size))
        # If the provider does not say what it has read, it is known all the same that the time is over.
        found, is_old = (fresh, True) if cached is None else (cached, fresh < should)
        share = _SLACK_SHARE if self._known_size == scale.known_size else _LOOSE_SHARE
        if should - found <= _slack(should, rules, share):
            return None
        kind: DriftKind = "expired" if is_old else "evicted"
        return Drift(kind=kind, path=None, token_offset=found, tokens_lost=should - found)

    def _with_reason(self, drift: Drift | None) -> Drift | None:
        """Return the drift with the provider's own word for it, which wins if it says something else."""
        reason, cached = self._reason, self._cached or 0
        kind, path, beginnings = _REASONS.get(reason or "", (None, None, ()))
        if reason is None:
            return drift
        if drift is None:
            whole = self._rules.kept(self._scale.tokens)
            # It speaks of the earlier response that it was asked to compare with: the prompt may be known of another.
            if kind is None or (cached and cached >= whole - _slack(whole, self._rules)):
                return None
            lost = max(0, self._scale.at(self._fresh_size) - cached)
            offset = min(cached, self._scale.tokens)
            return Drift(kind=kind, path=path, token_offset=offset, tokens_lost=lost, provider_reason=reason)
        drift = replace(drift, provider_reason=reason)
        if kind is None or kind == drift.kind or (drift.path is not None and drift.path.startswith(beginnings)):
            return drift
        return replace(drift, kind=kind, path=path or drift.path, character=None)


def _returned(drift: Drift | None) -> Drift | None:
    return drift


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

    __slots__ = ("digests", "heads", "leading", "rows", "spoken")

    def __init__(self, rows: Sequence[Segment], heads: int) -> None:
        """`heads`: how many segments stand before the messages."""
        self.rows = rows
        self.heads = heads
        self.leading = heads
        """How many stand before the first message that is not a leading system or developer message."""
        for row in rows[heads:]:
            if not isinstance(row.value, dict) or row.value.get("role") not in LEADING_ROLES:
                break
            self.leading += 1
        self.digests = [row.digest for row in rows]
        self.spoken = {row.digest: row.size for row in rows[self.leading :]}
        """The messages behind these: their bytes by their hashes."""

    def __len__(self) -> int:
        return len(self.rows)

    def size(self, start: int = 0, stop: int | None = None) -> int:
        """Return the bytes of some segments."""
        return sum(row.size for row in self.rows[start:stop])

    def path(self, index: int) -> str:
        """Return the path of a segment, or of the one that would stand behind the last."""
        if index < len(self.rows):
            return self.rows[index].path
        part = self.rows[-1].part if self.rows else "messages"
        return f"{part}[{sum(row.part == part for row in self.rows)}]"


def segments_of(line: PromptLine, text: bytes | None, count: int) -> PromptSegments | None:
    """Return a line's prompt with so many messages; None if its text is not kept."""
    if text is None:
        return None
    known = line.segments
    if known is None or known[0] is not text:
        known = line.segments = text, _read(line.head.text, text, line.head.items_name)
    segments: PromptSegments = known[1]
    return PromptSegments(segments.rows[: segments.heads + count], segments.heads)


def _read(head: bytes, text: bytes, name: str) -> PromptSegments:
    rows: list[Segment] = []
    for part, value in parsed(head).items():
        # The bytes of a name belong to what stands behind it, so that sizes add up to those of the whole prompt.
        _add(rows, part, value, len(part) + 4)
    heads = len(rows)
    if text:
        _add(rows, name, parsed(text + {b"[": b"]", b'"': b'"', b"{": b"}"}.get(text[:1], b"")), 0)
    return PromptSegments(rows, heads)


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
    return next(
        (at for at, (one, other) in enumerate(zip(old.digests, new.digests, strict=False)) if one != other),
        min(len(old), len(new)),
    )


def _ranked(new: PromptSegments, earlier: Sequence[Earlier]) -> list[Earlier]:
    """Return earlier prompts: those of the same conversation first, then those that begin alike for longest.

    Of the same conversation are those that have about as much of what was said in it as the one that has the most.
    """
    said = [new.spoken.keys() & one.segments.spoken.keys() for one in earlier]
    sizes = [sum(new.spoken[digest] for digest in shared) for shared in said]
    enough = max(_TELLING, _SAME_CONVERSATION * max(sizes, default=0))
    most = _SAME_CONVERSATION * max(map(len, said), default=0)
    ranks = [
        (size >= enough and len(shared) >= most, new.size(0, in_common(one.segments, new)), one.used_ns, number)
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
    if at == min(len(old), len(new)):
        return None
    found = _difference(old, new)
    leads = at < min(old.leading, new.leading)
    both = set(old.digests[at:]) & set(new.digests[at:])
    shared = sum(row.size for row in new.rows[at:] if row.digest in both)
    count = sum(row.digest in both for row in new.rows[at:])
    is_telling = count > 1 or shared >= _TELLING
    # A long text before the same short question is another prompt. Instructions are longer than what is said at first.
    rests = [
        rest.size(at) - (rest.rows[at].size if leads and rest.digests[at] not in both else 0) for rest in (old, new)
    ]
    share = min(1.0, shared / max(1, min(rests)))
    goes_on = len(new) > len(old)
    if leads:
        # Everything that was said is said again, or what differs is the same text edited.
        follows = is_telling and share >= _SIMILAR and (count > 1 or goes_on)
        if follows or _similar(old, at, new, at) >= _SIMILAR:
            return found
        # A short segment may be too short to have anything in common but for its digits.
        return found if is_telling and found is not None and found.kind in _REWRITTEN else None
    # What was said last is said again, among other things: however much went before it, it is this conversation. If
    # not, the rest may be examples, or documents, of which each call has drawn others.
    if old.digests[-1] in new.digests[at:] and (count > 1 or (is_telling and share >= _SHARED)):
        return found
    is_last = at == len(new) - 1
    return found if (is_telling or goes_on) and not is_last and _similar(old, at, new, at) >= _SIMILAR else None


def _departure_of_beginning(alike: Sequence[Earlier], new: PromptSegments) -> Difference | None:
    """Find where the leading segments depart from the most similar ones of another conversation."""
    best, most = None, 0.0
    beginnings: dict[tuple[int, ...], PromptSegments] = {}
    for one in [*alike[:_MAX_COMPARED], *sorted(alike, key=lambda one: -one.used_ns)]:
        if len(beginnings) == _MAX_COMPARED:
            break
        beginnings.setdefault(tuple(one.segments.digests[: one.segments.leading]), one.segments)
    for old in beginnings.values():
        at = in_common(old, new)
        if at >= new.leading:
            return None
        share = _beginnings_alike(old, new, at) if at < old.leading else 0.0
        if share > most:
            best, most = old, share
            if most >= _NEARLY:
                break
    return None if best is None or most < _SIMILAR else _difference(best, new)


def _beginnings_alike(old: PromptSegments, new: PromptSegments, at: int) -> float:
    """Return how much of two leading parts is the same: of the instructions if there are any, else of the tools."""
    starts = [
        next((index for index, row in enumerate(one.rows) if row.part in _MESSAGES), len(one)) for one in (old, new)
    ]
    old_start, start = starts
    has_instructions = [first < one.leading for first, one in zip(starts, (old, new), strict=True)]
    if all(has_instructions):
        behind = max(0, at - start)
        if start + behind >= new.leading or old_start + behind >= old.leading:
            behind = 0
        first, old_first = start + behind, old_start + behind
        if new.digests[first] != old.digests[old_first]:
            return _similar(old, old_first, new, first)
        if at >= start:
            return 1.0
    elif any(has_instructions):
        return 0.0
    others = set(old.digests[: old.leading])
    shared = sum(row.size for row in new.rows[: new.leading] if row.digest in others)
    whole = max(new.size(0, new.leading), old.size(0, old.leading), 1)
    return max(shared / whole, _similar(old, at, new, at))


def _similar(old: PromptSegments, old_at: int, new: PromptSegments, at: int) -> float:
    """Return how much of two segments is the same; 0 if it cannot be enough to matter."""
    if old_at >= len(old) or at >= len(new):
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


class _Change(NamedTuple):
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
    index = old_index = 0
    for part in (*HEAD_PARTS, *_ITEM_PARTS):
        rows = [row for row in new.rows if row.part == part]
        mine, theirs = ([row.digest for row in one.rows if row.part == part] for one in (new, old))
        if mine != theirs:
            break
        index, old_index = index + len(mine), old_index + len(theirs)
    else:
        return None
    at = common_length(theirs, mine)
    theirs, mine, index, old_index = theirs[at:], mine[at:], index + at, old_index + at
    if part in ("tools", "functions"):
        return _tool_difference(old, old_index, new, index, theirs, mine, f"{part}[{at}]")
    if not (mine and theirs):
        return None if part in _ITEM_PARTS else _whole("changed", part, old, old_index, new, index)
    path = rows[at].path
    is_within = part in _ITEM_PARTS and index >= new.leading
    steps = SequenceMatcher(None, theirs, mine, autojunk=False).get_opcodes()
    what, _, gone, _, added = steps[0]
    goes_on = len(steps) > 1
    if what == "insert":
        return _whole("changed", path, old, old_index, new, index)
    if what == "delete" or (goes_on and is_within and gone > added):
        # Messages are gone, or several became fewer: a summary stands in their place.
        return _whole("compacted" if is_within else "changed", path, old, old_index, new, index)
    return _edited("changed", old, old_index, new, index, may_be_shortened=is_within and goes_on)


def _tool_difference(
    old: PromptSegments,
    old_index: int,
    new: PromptSegments,
    index: int,
    theirs: Sequence[int],
    mine: Sequence[int],
    path: str,
) -> Difference:
    if Counter(theirs) == Counter(mine):
        return _whole("reordered_tools", path, old, old_index, new, index)
    is_new, is_gone = (not one or one[0] in other[1:] for one, other in ((theirs, mine), (mine, theirs)))
    if is_new and is_gone and theirs and mine:
        return _whole("reordered_tools", path, old, old_index, new, index)
    if is_new or is_gone:
        found = _whole("changed_tool", path, old, old_index, new, index)
        return found._replace(before=None) if is_new else found._replace(after=None)
    return _edited("changed_tool", old, old_index, new, index)


def _edited(
    otherwise: DriftKind,
    old: PromptSegments,
    old_index: int,
    new: PromptSegments,
    index: int,
    *,
    may_be_shortened: bool = False,
) -> Difference:
    """One segment is another than it was. `otherwise`: the kind if nothing says how."""
    row, then = new.rows[index], old.rows[old_index]
    change = _change(then.value, row.value) or _Change(None, "")
    kind = change.kind
    if kind is None or (otherwise == "changed_tool" and change.character is None and kind != "reordered_keys"):
        kind = "compacted" if may_be_shortened and _is_shortened(change) else otherwise
    before = min(row.size, common_length(json_of(then.value), json_of(row.value)))
    share = 1.0 if kind in _REWRITTEN else similarity(then.value, row.value)
    lost = max(0, round(share * row.size) - before) + _common_behind(old, old_index + 1, new, index + 1)
    path = row.path + change.path
    return Difference(kind, path, change.character, new.size(0, index) + before, lost, change.before, change.after)


def _whole(
    kind: DriftKind, path: str, old: PromptSegments, old_index: int, new: PromptSegments, index: int
) -> Difference:
    """One or more segments were moved, added or taken away as they are."""
    before, after = (one.rows[at].value if at < len(one) else None for one, at in ((old, old_index), (new, index)))
    lost = _common_behind(old, min(old_index, index), new, index)
    return Difference(kind, path, None, new.size(0, index), lost, before, after)


def _common_behind(old: PromptSegments, old_index: int, new: PromptSegments, index: int) -> int:
    """Return the bytes of the new prompt's segments from one on that the old one had as well, in whatever order."""
    left = Counter(_content(row) for row in old.rows[old_index:])
    total = 0
    for row in new.rows[index:]:
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


def _is_shortened(change: _Change) -> bool:
    before, after = (len(text) if isinstance(text, str) else 0 for text in (change.before, change.after))
    keeps_beginning = change.character is not None and change.character >= after / 2
    return before >= _SHORTENED_BYTES and after <= (_BEGINNING_SHARE if keeps_beginning else _STUB_SHARE) * before


def _change(old: Any, new: Any, path: str = "") -> _Change | None:
    """Find the first difference between two JSON values; None if they are written alike."""
    if isinstance(old, str) and isinstance(new, str):
        if old == new:
            return None
        at = common_length(old, new)
        kind = kind_of_change(old, new, at)
        if kind != "whitespace" and old[:1] in ("{", "[") and _is_same_json(old, new):
            kind = "reordered_keys"
        return _Change(kind, path, old, new, at)
    if isinstance(old, dict) and isinstance(new, dict):
        for mine, theirs in zip(old, new, strict=False):
            if mine != theirs:
                if theirs in old and mine in new:
                    return _Change("reordered_keys", path, old, new)
                name = mine if theirs in old else theirs
                return _Change(None, f"{path}.{name}", old.get(name), new.get(name))
            if (found := _change(old[mine], new[mine], f"{path}.{mine}")) is not None:
                return found
        more = [*new][len(old) :] or [*old][len(new) :]
        return _Change(None, f"{path}.{more[0]}", old.get(more[0]), new.get(more[0])) if more else None
    if isinstance(old, list) and isinstance(new, list):
        one, other = [*map(json_of, old)], [*map(json_of, new)]
        if one != other and sorted(one) == sorted(other):
            return _Change("reordered_keys", path, old, new)
        for index, (mine, theirs) in enumerate(zip(old, new, strict=False)):
            if (found := _change(mine, theirs, f"{path}[{index}]")) is not None:
                return found
        return None if len(old) == len(new) else _Change(None, f"{path}[{min(len(old), len(new))}]")
    return None if json_of(old) == json_of(new) else _Change(kind_of_number(str(old), str(new)), path, old, new)


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
