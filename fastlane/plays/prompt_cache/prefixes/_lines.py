"""What is remembered of prompts: conversations as lines of digests, and when each beginning was last used.

Nothing here is thread-safe by itself: the ledger holds its lock around it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from ._outline import Outline, digest

# A segment in the leading part belongs to every line of an application. These many of the latest are found by it; an
# older one is found by its own messages.
_MOST_OF_ONE_SEGMENT = 4
# From the end of a prompt, how far back the end of the line that it continues is looked for at first: a turn adds the
# answer, its tools' outputs and the next question.
_TURN = 24
_MOST_LOOKED = 4
# Beyond the model, what providers keep caches apart by, as they name it: OpenAI's diagnostics (the values of
# `PromptCacheDiagnosticsCacheMiss.reason`), vLLM's `cache_salt`, SGLang's `extra_key`, Fireworks' isolation key.
_PARAMETERS = (
    "prompt_cache_key", "reasoning_effort", "verbosity", "service_tier", "cache_salt", "extra_key",
    "prompt_cache_isolation_key",
)  # fmt: skip
_NESTED = (("reasoning", "effort"), ("text", "verbosity"))
# With one of these, most of the prompt is the provider's own record of the conversation, which nobody sees here.
_ELSEWHERE = ("previous_response_id", "conversation")
_NAMES = frozenset({*_PARAMETERS, *(name for name, _ in _NESTED)})
_ABSENT = frozenset({*_ELSEWHERE, "prompt"})

KEY = "prompt_cache_key"
# Lines that have one segment: of more, the segment says nothing.
_MOST_ALIKE = 64


class Attributes(NamedTuple):
    """What a provider keeps caches apart by, beside the prompt."""

    origin: str
    endpoint: str
    model: str | None
    parameters: tuple[tuple[str, Any], ...]
    """Those that the body has, each with its path."""

    def changed(self, other: Attributes) -> str | None:
        """The path of the first parameter that differs; None where none does."""
        own, others = dict(self.parameters), dict(other.parameters)
        return next((path for path in {**own, **others} if own.get(path) != others.get(path)), None)

    @property
    def key(self) -> Any:
        """The cache key; None where none is sent."""
        return dict(self.parameters).get(KEY)

    def but_for_the_key(self) -> tuple[Any, ...]:
        """The same without the cache key, which may follow from what the prompt begins with."""
        return self[:3] + tuple(pair for pair in self.parameters if pair[0] != KEY)


def attributes_of(
    origin: str, endpoint: str, model: str | None, body: Mapping[str, Any], key: str | None
) -> Attributes:
    """Read from a body what the provider keeps caches apart by. Never raises."""
    if key is None and _NAMES.isdisjoint(body):
        return Attributes(origin, endpoint, model, ())
    parameters = [(name, _plain(value)) for name in _PARAMETERS if (value := body.get(name)) is not None]
    for name, inner in _NESTED:
        value = body.get(name)
        if value is not None and isinstance(value, Mapping) and (value := value.get(inner)) is not None:
            parameters.append((f"{name}.{inner}", _plain(value)))
    if key is not None and KEY not in body:  # sent in a header, or under another name
        parameters.append((KEY, key))
    return Attributes(origin, endpoint, model, tuple(parameters))


def lies_elsewhere(body: Mapping[str, Any]) -> bool:
    """Whether most of the prompt is not in the body: a chained answer, a stored conversation, a stored template."""
    if _ABSENT.isdisjoint(body):
        return False
    return any(body.get(name) is not None for name in _ELSEWHERE) or isinstance(body.get("prompt"), Mapping)


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else digest(value)


def chained(seed: int, digests: tuple[int, ...], known: tuple[int, ...] = ()) -> tuple[int, ...]:
    """One number for each beginning of a prompt, which stands for all of it. `known`: those of the first segments."""
    number = known[-1] if known else seed
    chain = list(known)
    add = chain.append
    for one in digests[len(known) :]:
        number = hash((number, one))
        add(number)
    return tuple(chain)


class Line:
    """One conversation (or a prompt without one) as it was last sent and answered."""

    __slots__ = ("attributes", "chain", "family", "family_chain", "outline", "seed", "size", "tokens", "used_ns")

    def __init__(
        self,
        attributes: Attributes,
        seed: int,
        outline: Outline,
        chain: tuple[int, ...],
        family: str,
        used_ns: int,
    ) -> None:
        self.attributes = attributes
        self.seed = seed
        self.outline = outline
        self.chain = chain
        self.family = family
        self.family_chain: tuple[int, ...] = ()
        """The chain as if the family had one cache key; empty where it has, or that is not known."""
        self.size = 0
        self.tokens: int | None = None
        self.used_ns = used_ns


class _Segment:
    """One segment that lines have, and the latest of them."""

    __slots__ = ("count", "lines", "size", "text")

    def __init__(self, text: bytes | None, size: int) -> None:
        self.count = 0
        self.size = size
        self.lines: tuple[Line, ...] = ()
        self.text = text


class Uses:
    """When each beginning was last used. Of more than `most`, those that were not used for longest are forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, number: int) -> int | None:
        """Monotonic nanoseconds of the last use of a beginning; None where it is not known."""
        used = self._young.get(number)
        return self._old.get(number) if used is None else used

    def use(self, chain: tuple[int, ...], now_ns: int) -> None:
        """All these beginnings were used now."""
        young = self._young
        if len(young) + len(chain) > self._most:
            # Two generations: what is in use is written to the young one over and over.
            self._old = young
            self._young = young = {}
        for number in chain:  # faster than `update`, which makes another dict first
            young[number] = now_ns


class Lines:
    """The lines in the order of their last use, bounded in every way, and found by their segments.

    `most_characters` bounds the characters of their segments, each counted once.
    """

    def __init__(self, *, most_lines: int, most_segments: int, most_characters: int) -> None:
        self._most_lines = most_lines
        self._most_segments = most_segments
        self._most_characters = most_characters
        self._characters_held = 0
        self._segments_held = 0
        self._by_end: OrderedDict[int, Line] = OrderedDict()
        self._index: dict[int, _Segment] = {}

    def __len__(self) -> int:
        return len(self._by_end)

    def knows_any(self, segments: tuple[int, ...]) -> bool:
        """Whether any line has any of these segments."""
        return any(one in self._index for one in segments)

    def knows(self, one: int) -> bool:
        """Whether any line has this segment."""
        return one in self._index

    def text(self, one: int) -> bytes | None:
        """A segment as JSON; None where it is not kept."""
        segment = self._index.get(one)
        return None if segment is None else segment.text

    def continued(self, seed: int, digests: tuple[int, ...]) -> Line | None:
        """The line that these segments go on from, where it is found by the last of them that are known.

        That is so at every turn of a conversation, and does without a chain.
        """
        index = self._index
        count = len(digests)
        looked = 0
        for place in range(count - 1, max(-1, count - 1 - _TURN), -1):
            segment = index.get(digests[place])
            if segment is None:
                continue
            for line in segment.lines:
                known = line.outline.digests
                if line.seed == seed and count <= 2 * len(known) <= 2 * count and digests[: len(known)] == known:
                    return line
            looked += 1
            if looked == _MOST_LOOKED:
                break
        return None

    def is_latest(self, line: Line, one: int) -> bool:
        """Whether no line under the same model and parameters that has this segment was used later."""
        segment = self._index.get(one)
        lines = () if segment is None else segment.lines
        return all(other.used_ns <= line.used_ns or other.seed != line.seed for other in lines)

    def longest(self, chain: tuple[int, ...]) -> Line | None:
        """The longest line that a prompt begins with all of."""
        by_end = self._by_end
        for number in reversed(chain):
            line = by_end.get(number)
            if line is not None:
                return line
        return None

    def sharing(self, outline: Outline) -> dict[Line, int]:
        """Lines that have segments of this prompt, wherever they stand in it, with the characters of those.

        What very many lines have, such as the tools of an application, tells none of them from the others.
        """
        shared: dict[Line, int] = {}
        for one, size in zip(outline.digests, outline.sizes, strict=True):
            segment = self._index.get(one)
            if segment is not None and len(segment.lines) <= _MOST_ALIKE:
                for line in segment.lines:
                    shared[line] = shared.get(line, 0) + size + 1
        return shared

    def ending(self, number: int) -> Line | None:
        """The line that is the same prompt."""
        return self._by_end.get(number)

    def add(self, line: Line, texts: Mapping[int, bytes]) -> None:
        """Remember a new line."""
        self._by_end[line.chain[-1]] = line
        self._enter(line, 0, texts)
        self._forget()

    def extend(self, line: Line, outline: Outline, chain: tuple[int, ...], texts: Mapping[int, bytes]) -> None:
        """A line was sent once more, with more behind it."""
        before = len(line.chain)
        if self._by_end.get(line.chain[-1]) is line:
            del self._by_end[line.chain[-1]]
        else:  # it was forgotten meanwhile
            before = 0
        known = self._by_end.pop(chain[-1], None)
        if known is not None and known is not line:
            self._leave(known)
        line.outline = outline
        line.chain = chain
        self._by_end[chain[-1]] = line
        self._enter(line, before, texts)
        self._forget()

    def touch(self, line: Line) -> None:
        """A line was sent once more as it is."""
        if self._by_end.get(line.chain[-1]) is line:
            self._by_end.move_to_end(line.chain[-1])

    def clear(self) -> None:
        """Forget all."""
        self._by_end.clear()
        self._index.clear()
        self._segments_held = 0
        self._characters_held = 0

    def _enter(self, line: Line, start: int, texts: Mapping[int, bytes]) -> None:
        """Let a line be found by its segments from `start` on."""
        index = self._index
        digests, sizes = line.outline.digests[start:], line.outline.sizes[start:]
        self._segments_held += len(digests)
        for one, size in zip(digests, sizes, strict=True):
            segment = index.get(one)
            if segment is None:
                segment = index[one] = _Segment(texts.get(one), size)
                self._characters_held += size
            segment.count += 1
            lines = segment.lines
            if not lines:
                segment.lines = (line,)
            elif lines[0] is not line:
                segment.lines = (line, *[other for other in lines if other is not line][: _MOST_OF_ONE_SEGMENT - 1])

    def _leave(self, line: Line) -> None:
        index = self._index
        self._segments_held -= len(line.outline.digests)
        for one in line.outline.digests:
            segment = index[one]
            segment.count -= 1
            if not segment.count:
                del index[one]
                self._characters_held -= segment.size
            elif line in segment.lines:
                segment.lines = tuple(other for other in segment.lines if other is not line)

    def _forget(self) -> None:
        while len(self._by_end) > 1 and (
            len(self._by_end) > self._most_lines
            or self._segments_held > self._most_segments
            or self._characters_held > self._most_characters
        ):
            _, line = self._by_end.popitem(last=False)
            self._leave(line)
