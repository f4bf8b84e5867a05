"""Whether the provider remembers the beginning of a prompt: two equal requests, shortly after each other."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ._answers import at_path, count_paths
from ._findings import Group, MeasuredFact, ProviderFinding, in_ms, milliseconds
from ._session import DoctorSession
from ._streaming import cadence_of, events_in, usage_in

_GROUP: Group = "prompt cache"
_ENDPOINT = "/chat/completions"

# OpenAI's minimum, which others have taken over; what is written down of a provider comes first.
_USUAL_MINIMUM = 1_024
# Above the minimum by so much that a tokenizer which makes fewer tokens of a text still gets there.
_ABOVE = 2
_CHARACTERS_PER_TOKEN = 4.5
_WORDS = ("river", "stone", "lamp", "north", "seven", "paper", "cloud", "garden", "silver", "window", "train", "bread")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheReading:
    """What one of the two requests showed."""

    input_tokens: int | None
    cached_tokens: int | None
    """None where the answer does not say, which is not 0."""
    first_ns: int | None
    """From sending it to the first output; None without output."""


def tokens_wanted(known: Any) -> int:
    """How long a prompt has to be for the provider to remember it."""
    fact = known.cache.minimum_tokens if known is not None else None
    minimum = fact.value if fact is not None and fact.value is not None else _USUAL_MINIMUM
    return int(minimum * _ABOVE)


def prompt_of(tokens: int, mark: str) -> str:
    """A text of about so many tokens that nobody has sent before: it begins with the mark."""
    size = int(tokens * _CHARACTERS_PER_TOKEN)
    lines = [f"Notes {mark}."]
    length = 0
    at = 0
    while length < size:
        words = " ".join(_WORDS[(at * 5 + step * (1 + at % 3)) % len(_WORDS)] for step in range(9))
        lines.append(f"{at}. {words}.")
        length += len(lines[-1]) + 1
        at += 1
    return "\n".join([*lines, "Say yes."])


def look(session: DoctorSession) -> Iterator[ProviderFinding]:
    """Send the same long prompt twice."""
    prompt = prompt_of(tokens_wanted(session.known), secrets.token_hex(8))
    first = _reading(session, prompt)
    pause_s = 0.0 if session.settings.quick else session.settings.cache_pause_s
    threading.Event().wait(pause_s)
    second = _reading(session, prompt)
    yield judge(first, second, pause_s)


def _reading(session: DoctorSession, prompt: str) -> CacheReading:
    assert session.asking is not None
    streamed = session.asking.stream(prompt, 1)
    session.headers_seen.update(streamed.headers)
    events = tuple(events_in(streamed.pieces))
    cadence = cadence_of(events, streamed.sent_ns)
    last: Mapping[str, Any] = usage_in(events) or {}
    paths = count_paths(last, _ENDPOINT, session.known)
    if paths:
        session.count_paths.setdefault(_ENDPOINT, {}).update(paths)
    return CacheReading(
        input_tokens=at_path(last, paths["input"]) if "input" in paths else None,
        cached_tokens=at_path(last, paths["cached"]) if "cached" in paths else None,
        first_ns=None if cadence is None else cadence.first_ns,
    )


def judge(first: CacheReading, second: CacheReading, pause_s: float) -> ProviderFinding:
    """What two equal requests say of a cache."""
    times = ""
    if first.first_ns is not None and second.first_ns is not None:
        times = f"; first token {milliseconds(first.first_ns)}, then {milliseconds(second.first_ns)}"
    value = {
        "input_tokens": second.input_tokens,
        "cached_tokens": [first.cached_tokens, second.cached_tokens],
        "first_token_ms": [in_ms(first.first_ns), in_ms(second.first_ns)],
        "pause_s": pause_s,
    }
    of = f" of {second.input_tokens:,}" if second.input_tokens is not None else ""
    if second.cached_tokens is None:
        seen = f"the answers do not say how many tokens were cached, which is not none{times}"
        return _finding(seen, "notable", "Whether prompts are remembered can only be told by time.", value)
    if second.cached_tokens == 0:
        seen = f"none{of} tokens of the second of two equal requests, {pause_s:g} s apart{times}"
        advice = "It may need a longer prompt, more time, another server of theirs, or to be asked for it."
        return _finding(seen, "notable", advice, value)
    seen = f"{second.cached_tokens:,}{of} tokens of the second of two equal requests{times}"
    facts: tuple[MeasuredFact, ...] = (
        MeasuredFact(
            path=("cache", "automatic"), value=True, note=f"{second.cached_tokens} of {second.input_tokens} tokens"
        ),
    )
    if first.cached_tokens:
        seen += f"; of the first {first.cached_tokens:,}, although it was new"
        facts = ()
    return _finding(seen, "seen", "", value, facts)


def _finding(seen: str, state: Any, advice: str, value: Any, facts: tuple[MeasuredFact, ...] = ()) -> ProviderFinding:
    return ProviderFinding(
        group=_GROUP, looked_at="equal prompts", seen=seen, state=state, advice=advice, value=value, facts=facts
    )
