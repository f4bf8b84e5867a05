"""The presets: workloads by name, each with the document that its figures come from, and their text."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist
from types import MappingProxyType
from typing import Final

from ...errors import ConfigurationError
from ._code_review import code_review
from ._workload import Conversation, LatePrompt, Turn, Workload

# 256 words of three letters. With the blank before it, and at the start of a text, each is one token of OpenAI's
# o200k_base and cl100k_base (checked with both); with its blank it is four characters, which is one token of the
# embedded provider. So a text of n of them has n tokens by either count.
WORDS = tuple(
    """
    ace act add age ago aid aim air all and ant any ape arc are ark arm art ash ask ate axe bad bag ban bar bat bay bed
    bee bet bid big bin bit bow box boy bud bug bus but buy cab can cap car cat cop cow cry cup cut dad dam day den did
    dig dim dog dot dry due ear eat egg ego elf elm end era eve eye fan far fat fee few fig fin fit fix fly for fox fun
    fur gap gas gel gem get gin got had ham hat hay hen her hid him hip his hit hop hot how hub ice icy ink inn ion its
    jam jar jaw jet job joy jug key kid kin kit lab lap law lay leg let lid lie lip lit log lot low mad man map mat may
    men met mix mob mom nap net new nil nod nor not now nut odd off oil old one orb ore our out owe owl own pad pan pay
    pen per pet pie pig pin pit pop pot pub pun put ram ran rat raw ray red rib rid rig rim rip rob rod rot row rub rug
    run sad say sea see set she sip sit six ski sky son spa spy sum sun tab tag tan tap tar tax tea ten the tie tin tip
    ton too top toy try two use van vet via was way web who why wig win wit won wow yes yet you zip
    """.split()  # noqa: SIM905 - nobody reads 256 quoted words
)

INSTRUCTION = "\n\nWrite one long text about these words, as long as you are allowed to."
INSTRUCTION_TOKENS = 17
"""Of o200k_base and of cl100k_base."""

_LEAD_WORDS = 3


@cache
def _shuffled(key: str) -> tuple[str, ...]:
    order = sorted(range(len(WORDS)), key=lambda at: hashlib.blake2b(f"{key}/{at}".encode(), digest_size=8).digest())
    return tuple(WORDS[at] for at in order)


def lead(key: str, number: int) -> tuple[str, ...]:
    """Return three words that no other of the first 16,777,216 numbers has.

    Those of any 256 consecutive numbers differ in their very first word, and no two numbers share all three.
    """
    words = _shuffled(key)
    size = len(words)
    digits = [number // size**place % size for place in range(_LEAD_WORDS)]
    return tuple(words[digit] for digit in digits)


def words(key: str, count: int) -> str:
    """Return `count` words, one token each, drawn by the key."""
    drawn = hashlib.shake_128(key.encode()).digest(max(count, 0))
    return " ".join([WORDS[byte] for byte in drawn])


def prompt(key: str, number: int, tokens: int) -> str:
    """Return the text of prompt `number`, of `tokens` tokens: words that no other prompt begins with, and a request.

    Prompts shorter than the request are the words alone. At least three words are always there.
    """
    tail, tail_tokens = (INSTRUCTION, INSTRUCTION_TOKENS) if tokens >= 2 * INSTRUCTION_TOKENS else ("", 0)
    filling = words(f"{key}/{number}", tokens - tail_tokens - _LEAD_WORDS)
    return " ".join([*lead(key, number), *([filling] if filling else [])]) + tail


def _block(key: str, number: int, tokens: int) -> str:
    rest = words(f"{key}/block/{number}", tokens - _LEAD_WORDS)
    return " ".join([*lead(key, number)[:tokens], *([rest] if rest else [])])


def shared_prompt(key: str, number: int, tokens: int, blocks: Sequence[int], block_tokens: int) -> str:
    """Return a prompt of `tokens` tokens that begins with the text of its blocks, and goes on with text of its own.

    The text of a block is the same for the same number, and differs from the first word on for another.
    """
    pieces = [
        _block(key, each, min(block_tokens, tokens - at * block_tokens))
        for at, each in enumerate(blocks)
        if at * block_tokens < tokens
    ]
    if (rest := tokens - len(blocks) * block_tokens) > 0:
        pieces.append(_block(f"{key}/own", number, rest))
    return " ".join(pieces)


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
    requests: int = 2_000
    """Conversations that it has if not told otherwise; their text costs nothing until it is used."""
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
        conversations=tuple(_of_length(name, f"{name}/{seed}", scenario, number) for number in range(count)),
        notes=tuple(notes),
        source=whole.source,
        caching_forbidden=True,
        # The reports' users send their next request at once.
        think_s=0.0,
    )


def _of_length(label: str, key: str, scenario: Scenario, number: int) -> Conversation:
    """Return a conversation of one turn, whose lengths are drawn by its number: always the same ones."""
    name, tokens = f"{label} {number}", scenario.input.drawn(f"{key}/input/{number}")
    turn = Turn(
        conversation=name,
        number=1,
        messages=LatePrompt(prompt, (key, number, tokens)),
        tools=(),
        answer_tokens=scenario.output.drawn(f"{key}/output/{number}"),
        least_answer_tokens=scenario.output.least,
        input_tokens=tokens,
    )
    return Conversation(name=name, made=(turn,))
