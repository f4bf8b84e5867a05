"""Plays whose effect is known to the token: each leaves out known parts of a prompt, some of which another leaves out.

The emulator takes 20 us for each token of a prompt, and a part has as many tokens as it has characters over four.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from fastlane import Play
from fastlane.bench.workloads import Conversation, Workload
from fastlane.engine.call import Call
from fastlane.engine.session import Session

PART_TOKENS: Final = 1_500
PARTS: Final = 5
SECONDS_PER_TOKEN: Final = 20e-6
_SENTENCE: Final = "What was left out is not read again. "


def _mark(part: int) -> str:
    return f"Part {part}. "


def _part(part: int) -> str:
    characters = 4 * PART_TOKENS
    return (_mark(part) + _SENTENCE * (characters // len(_SENTENCE) + 1))[:characters]


def workload() -> Workload:
    """Return one request whose prompt has five parts of the same length."""
    messages: tuple[Mapping[str, Any], ...] = (
        *({"role": "user", "content": _part(part)} for part in range(PARTS)),
        {"role": "assistant", "content": "Read, as far as it was there."},
    )
    return Workload(
        name="five parts",
        conversations=(Conversation(name="one", messages=messages),),
        caching_forbidden=True,
    )


@dataclass(frozen=True, slots=True)
class _Trimming(Play):
    parts: ClassVar[frozenset[int]] = frozenset()

    def open(self, call: Call) -> Session:
        return _LeavingOut(self.parts)


class _LeavingOut(Session):
    def __init__(self, parts: frozenset[int]) -> None:
        self._parts = parts

    def plan(self, call: Call) -> Call:
        messages = call.body.get("messages", [])
        kept = [message for message in messages if not self._trims(message)]
        return call.with_body("left parts of the prompt out", messages=kept) if len(kept) < len(messages) else call

    def _trims(self, message: Any) -> bool:
        text = message.get("content") if isinstance(message, Mapping) else None
        # The first message has the engine's salt before its part.
        return isinstance(text, str) and any(_mark(part) in text[:200] for part in self._parts)


@dataclass(frozen=True, slots=True)
class Beginning(_Trimming):
    """Leaves out the second and the third part."""

    parts: ClassVar[frozenset[int]] = frozenset({1, 2})


@dataclass(frozen=True, slots=True)
class Middle(_Trimming):
    """Leaves out the third and the fourth part, the third of which `Beginning` leaves out as well."""

    parts: ClassVar[frozenset[int]] = frozenset({2, 3})


@dataclass(frozen=True, slots=True)
class End(_Trimming):
    """Leaves out the last part."""

    parts: ClassVar[frozenset[int]] = frozenset({4})


TRIMMING: Final = (Beginning(), Middle(), End())


def true_parts_ms() -> dict[str, float]:
    """Return what each play saves of the time to the first token; a part that two leave out is saved by both half."""
    each_ms = PART_TOKENS * SECONDS_PER_TOKEN * 1e3
    takers = {part: sum(part in play.parts for play in TRIMMING) for part in range(PARTS)}
    return {repr(play): -sum(each_ms / takers[part] for part in play.parts) for play in TRIMMING}
