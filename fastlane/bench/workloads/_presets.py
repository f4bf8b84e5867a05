"""The presets: workloads by name, each with the document that its figures come from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from types import MappingProxyType
from typing import Final

from fastlane.errors import ConfigurationError

from ._code_review import code_review
from ._text import user_prompt
from ._workload import Conversation, Made, Turn, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLengths:
    """A number of tokens: always the same, or normally distributed and cut off at both ends."""

    least: int
    most: int

    @property
    def mean(self) -> float:
        """(least + most) / 2, which cutting off at both ends leaves as it is."""
        return (self.least + self.most) / 2

    @property
    def deviation(self) -> float:
        """(most - least) / 4: of the normal distribution before it is cut off at two of them; 0.88 of it after."""
        return (self.most - self.least) / 4

    def drawn(self, key: str) -> int:
        """Return the length that belongs to a key: always the same one."""
        if self.least == self.most:
            return self.least
        normal = NormalDist(self.mean, self.deviation)
        # From half a token below to half a token above, so that rounding gives the ends their share.
        low, high = normal.cdf(self.least - 0.5), normal.cdf(self.most + 0.5)
        digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
        share = (int.from_bytes(digest) + 0.5) / 2**64
        return min(max(round(normal.inv_cdf(low + share * (high - low))), self.least), self.most)

    def __str__(self) -> str:
        return f"{self.least:,}" if self.least == self.most else f"{self.least:,}-{self.most:,}"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One setting of lengths."""

    name: str
    """Empty where the preset has only one."""
    input: TokenLengths
    """Of prompts, in tokens."""
    output: TokenLengths
    """Of answers, in tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A workload by name. `preset` and `scenarios` make it."""

    name: str
    source: str
    """Where its figures come from."""
    scenarios: tuple[Scenario, ...] = ()
    """Empty for conversations, which grow by turn. No two prompts of a scenario begin alike."""
    users: tuple[int, ...]
    """Requests in flight that it is run with, one cell each."""
    requests: int = 10_000
    """Conversations that it has if not told otherwise; they cost nothing until they are used."""
    runs: int | None = None
    """Requests that count, after one for warm-up; None leaves both to the run."""

    @property
    def max_output_tokens(self) -> int | None:
        """The most output tokens that any of its requests asks for; None for conversations."""
        return max((scenario.output.most for scenario in self.scenarios), default=None)


def _scenario(name: str, tokens_in: tuple[int, int], tokens_out: tuple[int, int]) -> Scenario:
    lengths = (TokenLengths(least=least, most=most) for least, most in (tokens_in, tokens_out))
    return Scenario(name, *lengths)


def _fixed(name: str, tokens_in: int, tokens_out: int) -> Scenario:
    return _scenario(name, (tokens_in, tokens_in), (tokens_out, tokens_out))


def _of_load_report(name: str, tokens_in: tuple[int, int], tokens_out: tuple[int, int]) -> Preset:
    return Preset(
        name=name,
        source="a load report of gpt-4.1-nano through a public API, of 27 January 2026",
        scenarios=(_scenario("", tokens_in, tokens_out),),
        users=(1, 10, 20, 30, 40, 50),
    )


_PRESETS: Final = {
    preset.name: preset
    for preset in (
        _of_load_report("rag", (1_000, 10_000), (200, 500)),
        _of_load_report("generate", (100, 200), (1_000, 10_000)),
        _of_load_report("chat", (100, 200), (200, 500)),
        Preset(
            name="cpu-small",
            source="a latency benchmark of GPT-2 (124M) on a CPU, of 28 January 2026: 1 warm-up run and 5 runs of each",
            scenarios=(_fixed("short", 128, 64), _fixed("medium", 512, 128), _fixed("long", 1_024, 256)),
            users=(1,),
            runs=5,
            requests=6,
        ),
        Preset(
            name="scaling",
            source=(
                "a report of decode speed on a dedicated GPU (H200), which names two of four context lengths and "
                "states none: the lengths are this project's"
            ),
            scenarios=(
                _fixed("chatbot", 1_024, 256),
                _fixed("retrieval", 4_096, 256),
                _fixed("coding-assistant", 16_384, 256),
                _fixed("tool-calling-agent", 30_720, 256),
            ),
            users=(1, 2, 4, 8, 16, 32),
        ),
        Preset(
            name="code-review",
            source="built in: real source code, reviews made for this project",
            users=(8,),
            requests=31,
        ),
    )
}


def presets() -> Mapping[str, Preset]:
    """Return all presets by name: source, lengths, users and scenarios of each."""
    return MappingProxyType(_PRESETS)


def preset(name: str, *, seed: int = 0, requests: int | None = None) -> Workload:
    """Return the workload of a preset with one setting of lengths, or of one of several: "scaling/chatbot".

    `requests` is how many conversations it has. Prompts have their number of tokens by construction, for o200k_base and
    cl100k_base. Raises ConfigurationError for an unknown name.
    """
    made = scenarios(name, seed=seed, requests=requests)
    if len(made) > 1:
        known = ", ".join(f"{name}/{each.name}" for each in _PRESETS[name].scenarios)
        raise ConfigurationError(f"{name!r} is no single workload: it has the scenarios {known}")
    return made[0]


def scenarios(name: str, *, seed: int = 0, requests: int | None = None) -> tuple[Workload, ...]:
    """Return the workloads of a preset, one for each setting of lengths, or of the named one; see `preset`.

    Raises ConfigurationError for an unknown name.
    """
    of, _, chosen = name.partition("/")
    if of not in _PRESETS:
        raise ConfigurationError(f"unknown preset {of!r}: the known ones are {', '.join(_PRESETS)}")
    whole = _PRESETS[of]
    count = whole.requests if requests is None else requests
    if count < 1:
        raise ConfigurationError(f"requests takes 1 or more, got {count}")
    found = [each for each in whole.scenarios if chosen in ("", each.name)]
    if chosen and not found:
        raise ConfigurationError(f"unknown workload {name!r}: {of!r} has no scenario {chosen!r}")
    if not found:
        return (replace(code_review(), source=whole.source).limited(requests),)
    return tuple(_of_lengths(whole, scenario, seed, count) for scenario in found)


def _of_lengths(whole: Preset, scenario: Scenario, seed: int, count: int) -> Workload:
    name = f"{whole.name}, {scenario.name}" if scenario.name else whole.name
    notes = [f"prompts of {scenario.input} tokens, answers of at most {scenario.output}"]
    for what, lengths in (("prompts", scenario.input), ("answers", scenario.output)):
        if lengths.least < lengths.most:
            notes.append(
                f"lengths of {what}: normally distributed, {lengths.mean:,.0f} +- {lengths.deviation:,.0f}, cut off at "
                "both ends"
            )
    notes.append(
        "prompts of words that are one token each of o200k_base and cl100k_base; gzip makes them 2.3 times smaller"
    )
    notes.append("no two prompts share their first three words")
    return Workload(
        name=name,
        conversations=Made(range(count), _OfLengths(name, seed, scenario)),
        notes=tuple(notes),
        source=whole.source,
        caching_forbidden=True,
        # The reports' users send their next request at once.
        think_s=0.0,
    )


@dataclass(frozen=True, slots=True)
class _OfLengths:
    """Makes conversations of one turn, whose lengths are drawn by their number: always the same ones."""

    label: str
    seed: int
    scenario: Scenario

    def __call__(self, number: int) -> Conversation:
        name, key, scenario = f"{self.label} {number}", f"{self.label}/{self.seed}", self.scenario
        tokens = scenario.input.drawn(f"{key}/input/{number}")
        turn = Turn(
            conversation=name,
            number=1,
            messages=Made([(key, number, tokens)], user_prompt),
            tools=(),
            answer_tokens=scenario.output.drawn(f"{key}/output/{number}"),
            least_answer_tokens=scenario.output.least,
            input_tokens=tokens,
        )
        return Conversation(name=name, made=(turn,))
