"""The prompts' families: what they are called, what was counted of each, and the latest line of each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastlane.records.prompt import Drift, DriftKind, PromptCacheRecord

from ._report import DriftCount, FamilyReport, PromptCacheReport

if TYPE_CHECKING:
    from ._lines import Attributes, Line

_MOST_HEADS = 1_024
_MOST_FAMILIES = 256
# Of families that were forgotten, one row remains for each of so many models.
_MOST_MODELS = 64
_OTHERS = "others"


class _Drifts:
    """What was counted of one kind of drift."""

    __slots__ = ("calls", "most", "path", "tokens_lost")

    def __init__(self) -> None:
        self.calls = 0
        self.tokens_lost = 0
        self.most = -1
        self.path: str | None = None

    def add(self, calls: int, tokens_lost: int, most: int, path: str | None) -> None:
        self.calls += calls
        self.tokens_lost += tokens_lost
        if most > self.most:
            self.most = most
            self.path = path


class _Family:
    """What was counted of one family's answered calls."""

    __slots__ = (
        "cached_tokens", "calls", "drifts", "expected_tokens", "key", "line", "model", "origin", "prompt_tokens",
        "said_calls", "said_expected_tokens", "said_prompt_tokens",
    )  # fmt: skip

    def __init__(self, origin: str, model: str | None) -> None:
        self.origin = origin
        self.model = model
        self.key: str | None = None
        self.line: Line | None = None
        self.calls = self.said_calls = self.prompt_tokens = self.said_prompt_tokens = 0
        self.cached_tokens = self.expected_tokens = self.said_expected_tokens = 0
        self.drifts: dict[DriftKind, _Drifts] = {}

    def count(self, record: PromptCacheRecord) -> None:
        self.calls += 1
        self.prompt_tokens += record.prompt_tokens
        self.key = record.key
        if record.cached_tokens is not None:
            self.said_calls += 1
            self.said_prompt_tokens += record.prompt_tokens
            self.cached_tokens += record.cached_tokens
            self.said_expected_tokens += record.expected_tokens or 0
        if record.expected_tokens is not None:
            self.expected_tokens += record.expected_tokens
        drift: Drift | None = record.drift
        if drift is not None:
            counted = self.drifts.setdefault(drift.kind, _Drifts())
            counted.add(1, drift.tokens_lost, drift.tokens_lost, drift.path)

    def take(self, other: _Family) -> None:
        """Add all that was counted of another."""
        self.calls += other.calls
        self.said_calls += other.said_calls
        self.prompt_tokens += other.prompt_tokens
        self.said_prompt_tokens += other.said_prompt_tokens
        self.cached_tokens += other.cached_tokens
        self.expected_tokens += other.expected_tokens
        self.said_expected_tokens += other.said_expected_tokens
        for kind, drifts in other.drifts.items():
            self.drifts.setdefault(kind, _Drifts()).add(drifts.calls, drifts.tokens_lost, drifts.most, drifts.path)

    def report(self, name: str) -> FamilyReport:
        counts = [
            DriftCount(kind=kind, calls=drifts.calls, tokens_lost=drifts.tokens_lost, path=drifts.path)
            for kind, drifts in self.drifts.items()
        ]
        return FamilyReport(
            family=name,
            origin=self.origin,
            model=self.model,
            key=self.key,
            calls=self.calls,
            said_calls=self.said_calls,
            prompt_tokens=self.prompt_tokens,
            said_prompt_tokens=self.said_prompt_tokens,
            cached_tokens=self.cached_tokens if self.said_calls else None,
            expected_tokens=self.expected_tokens,
            said_expected_tokens=self.said_expected_tokens if self.said_calls else None,
            drifts=tuple(sorted(counts, key=lambda count: (-count.tokens_lost, count.kind))),
        )


class Families:
    """All families, in the order of their last use. Not thread-safe by itself."""

    def __init__(self) -> None:
        # By what their prompts begin with. Where a family's own beginning drifts, it has several.
        self._names: OrderedDict[int, str] = OrderedDict()
        self._families: OrderedDict[str, _Family] = OrderedDict()
        self._others: dict[str | None, _Family] = {}

    def named(self, head: int) -> str:
        """The family whose prompts begin with this: the one that it is known of, or else a new one."""
        known = self._names.get(head)
        return f"{head & 0xFFFF_FFFF_FFFF_FFFF:016x}" if known is None else known

    def lines(self) -> Iterator[Line]:
        """The latest line of each family, from the latest family on."""
        return (family.line for family in reversed(self._families.values()) if family.line is not None)

    def count(self, name: str, head: int, attributes: Attributes, line: Line | None, record: PromptCacheRecord) -> None:
        """Count one answered call of a family, whose prompt begins with `head`."""
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = _Family(attributes.origin, attributes.model)
            if len(self._families) > _MOST_FAMILIES:
                self._forget()
        else:
            self._families.move_to_end(name)
        self._names[head] = name
        self._names.move_to_end(head)
        if len(self._names) > _MOST_HEADS:
            self._names.popitem(last=False)
        family.line = line
        family.count(record)

    def report(self) -> PromptCacheReport:
        """All that was counted."""
        rows = [family.report(name) for name, family in self._families.items()]
        rows += [family.report(_OTHERS) for family in self._others.values()]
        return PromptCacheReport(families=tuple(sorted(rows, key=lambda row: (-row.prompt_tokens, row.family))))

    def clear(self) -> None:
        """Forget all."""
        self._names.clear()
        self._families.clear()
        self._others.clear()

    def _forget(self) -> None:
        _, oldest = self._families.popitem(last=False)
        model = oldest.model
        if model not in self._others and len(self._others) >= _MOST_MODELS:
            model = _OTHERS
        self._others.setdefault(model, _Family("", model)).take(oldest)
