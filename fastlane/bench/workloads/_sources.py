"""Where workloads come from: presets, each with the document of its figures, and files of conversations."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from random import Random
from statistics import NormalDist
from types import MappingProxyType
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from ...errors import ConfigurationError
from ..recorded import described, rows_of
from ._workload import Conversation, LatePrompt, Message, Turn, UnusableMessageError, Workload, sendable

_DATA: Final[Mapping[str, Any]] = json.loads(Path(__file__).with_name("presets.json").read_text(encoding="utf-8"))
WORDS: Final = tuple(" ".join(_DATA["words"]).split())
"""256 words of three letters. With the blank before it, and at the start of a text, each is one token of OpenAI's
o200k_base and cl100k_base (checked with both); with its blank it is four characters, which is one token of the embedded
provider. So a text of n of them has n tokens by either count."""
INSTRUCTION: Final = "\n\nWrite one long text about these words, as long as you are allowed to."
INSTRUCTION_TOKENS: Final = 17
_LEAD_WORDS: Final = 3


def prompt(key: str, number: int, tokens: int) -> str:
    """Return the text of prompt `number`, of `tokens` tokens: words that no other prompt begins with, and a request."""
    tail, tail_tokens = (INSTRUCTION, INSTRUCTION_TOKENS) if tokens >= 2 * INSTRUCTION_TOKENS else ("", 0)
    return _words(key, number, max(_LEAD_WORDS, tokens - tail_tokens)) + tail


def _words(key: str, number: int, count: int) -> str:
    """Return `count` words, one token each; the first three are no other of 16,777,216 numbers'."""
    shift = hashlib.blake2b(key.encode(), digest_size=_LEAD_WORDS).digest()
    lead = [WORDS[(number // len(WORDS) ** at + shift[at]) % len(WORDS)] for at in range(_LEAD_WORDS)]
    drawn = hashlib.shake_128(f"{key}/{number}".encode()).digest(max(count - _LEAD_WORDS, 0))
    return " ".join([*lead[:count], *(WORDS[byte] for byte in drawn)])


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLengths:
    """A number of tokens: always the same, or normally distributed and cut off at both ends."""

    least: int
    most: int

    @property
    def mean(self) -> float:
        return (self.least + self.most) / 2

    @property
    def deviation(self) -> float:
        """(most - least) / 4: of the normal distribution before it is cut off at two of them; 0.88 of it after."""
        return (self.most - self.least) / 4

    def drawn(self, key: str) -> int:
        if self.least == self.most:
            return self.least
        normal = NormalDist(self.mean, self.deviation)
        # From half a token below to half a token above, so that rounding gives the ends their share.
        low, high = normal.cdf(self.least - 0.5), normal.cdf(self.most + 0.5)
        share = (int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest()) + 0.5) / 2**64
        return min(max(round(normal.inv_cdf(low + share * (high - low))), self.least), self.most)

    def __str__(self) -> str:
        return f"{self.least:,}" if self.least == self.most else f"{self.least:,}-{self.most:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One setting of lengths: of prompts and answers, in tokens; without a name where the preset has only one."""

    name: str
    input: TokenLengths
    output: TokenLengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A workload by name. `preset` and `scenarios` make it."""

    name: str
    source: str
    scenarios: tuple[Scenario, ...] = ()
    """Empty for conversations, which grow by turn. No two prompts of a scenario begin alike."""
    users: tuple[int, ...]
    requests: int = 2_000
    """Conversations that it has by default; their text costs nothing until it is used."""
    runs: int | None = None
    """Requests that count, after one for warm-up; None leaves both to the run."""

    @property
    def max_output_tokens(self) -> int | None:
        """The most output tokens that any of its requests asks for; None for conversations."""
        return max((scenario.output.most for scenario in self.scenarios), default=None)


_PRESETS: Final = {each.name: each for each in TypeAdapter(list[Preset]).validate_python(_DATA["presets"])}


def presets() -> Mapping[str, Preset]:
    """Return all presets by name: source, lengths, users and scenarios of each."""
    return MappingProxyType(_PRESETS)


def preset(name: str, *, seed: int = 0, requests: int | None = None) -> Workload:
    """Return the workload of a preset with one setting of lengths, or of one of several: "scaling/chatbot".

    `requests` is how many conversations it has. Raises ConfigurationError for an unknown name.
    """
    made = scenarios(name, seed=seed, requests=requests)
    if len(made) > 1:
        known = ", ".join(f"{name}/{each.name}" for each in _PRESETS[name].scenarios)
        raise ConfigurationError(f"{name!r} is no single workload: it has the scenarios {known}")
    return made[0]


def scenarios(name: str, *, seed: int = 0, requests: int | None = None) -> tuple[Workload, ...]:
    """Return the workloads of a preset, one per setting of lengths; see `preset`. Raises ConfigurationError."""
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
    conversations = []
    for number in range(count):
        key, label = f"{name}/{seed}", f"{name} {number}"
        tokens = scenario.input.drawn(f"{key}/input/{number}")
        turn = Turn(
            conversation=label,
            number=1,
            messages=LatePrompt(prompt, (key, number, tokens)),
            tools=(),
            answer_tokens=scenario.output.drawn(f"{key}/output/{number}"),
            least_answer_tokens=scenario.output.least,
            input_tokens=tokens,
        )
        conversations.append(Conversation(name=label, made=(turn,)))
    normal = [
        f"lengths of {what}: normally distributed, {each.mean:,.0f} +- {each.deviation:,.0f}, cut off at both ends"
        for what, each in (("prompts", scenario.input), ("answers", scenario.output))
        if each.least < each.most
    ]
    return Workload(
        name=name,
        conversations=tuple(conversations),
        notes=(
            f"prompts of {scenario.input} tokens, answers of at most {scenario.output}",
            *normal,
            "prompts of words that are one token each of o200k_base and cl100k_base; gzip makes them 2.3 times smaller",
            "no two prompts share their first three words",
        ),
        source=whole.source,
        caching_forbidden=True,
        # The reports' users send their next request at once.
        think_s=0.0,
    )


# An agent that reviews modules of the running Python's standard library


_TEXTS: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("code_review.json").read_text(encoding="utf-8"))
# Single source files of 15 to 125 kB on CPython 3.11 to 3.14 that are neither frozen into the interpreter nor left
# out by distributions. The order mixes sizes, so that a run that ends early has seen short and long histories.
MODULES: Final[list[str]] = _TEXTS["modules"]
_FINDINGS: Final[list[str]] = _TEXTS["findings"]
# About what file-reading tools of coding agents return at a time.
_PIECE_CHARACTERS = 6_000


def code_review() -> Workload:
    """Return one review for each of `MODULES`: the same for the same Python, on every machine."""
    tools = tuple(_TEXTS["tools"])
    conversations, missing = [], []
    for module in MODULES:
        spec = find_spec(module)
        get_source = getattr(spec.loader, "get_source", None) if spec else None
        source = get_source(module) if get_source else None
        if source is None:
            missing.append(module)
        else:
            messages = tuple(_review(module, source))
            conversations.append(Conversation(name=f"review {module}", messages=messages, tools=tools))
    notes = (f"this Python has no source text of {', '.join(missing)}",) if missing else ()
    return Workload(name="code-review", conversations=tuple(conversations), notes=notes)


def _review(module: str, source: str) -> list[Message]:
    random = Random(module)
    path = str(PurePosixPath("Lib", *module.split(".")).with_suffix(".py"))
    pieces = list(_pieces(source.splitlines()))[: random.randint(5, 7)]
    names = [found for first, piece in pieces for found in _definitions(first, piece)] or [(1, module)]
    messages: list[Message] = [
        _said("system", "".join(f"{line}\n" for line in _TEXTS["system"])),
        _said("user", f"Please review {path} before we release it. Its tests pass. I care most about wrong results."),
    ]

    def call(name: str, result: str, content: str | None = None, **arguments: object) -> None:
        call_id = f"call_{sum('tool_calls' in message for message in messages) + 1:03}"
        function = {"name": name, "arguments": json.dumps(arguments)}
        calls = [{"id": call_id, "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": content, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": call_id, "content": result})

    for number, (first, piece) in enumerate(pieces, start=1):
        plan = f"I read {path} from its start, in pieces, before I judge it." if number == 1 else None
        text = "\n".join(f"{line:>5}  {text}" for line, text in enumerate(piece, start=first))
        call("read_file", text, plan, path=path, start_line=first, end_line=first + len(piece) - 1)
        if number % 2 == 0:
            line, name = random.choice(_definitions(first, piece) or names)
            body = random.choice(_FINDINGS).format(name=name, line=line)
            call("comment", f"comment on line {line} saved", path=path, line=line, severity="major", body=body)
    line, name = random.choice(names)
    findings = [text.format(name=name, line=line) for text in _FINDINGS]
    messages.append(_said("assistant", " ".join(random.sample(findings, 2))))
    messages.append(
        _said("user", f"About `{name}`: who calls it? I thought that only this module does. Please look again.")
    )
    matches = [f"{at:>5}  {text}" for at, text in enumerate(source.splitlines(), start=1) if name in text]
    call("search", "\n".join(matches[:40]) or "no line matches", path=path, pattern=rf"\b{name}\b")
    answer = random.choice(findings)
    messages.append(_said("assistant", f"`{name}` appears on {len(matches)} lines of {path}. {answer}"))
    messages.append(_said("user", "Agreed. Please summarise what must change before the merge, and what can wait."))
    messages.append(_said("assistant", " ".join(findings[2:])))
    return messages


def _said(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _pieces(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    first, characters = 0, 0
    for at, line in enumerate(lines):
        characters += len(line) + 1
        if characters >= _PIECE_CHARACTERS:
            yield first + 1, lines[first : at + 1]
            first, characters = at + 1, 0
    if first < len(lines):
        yield first + 1, lines[first:]


def _definitions(first: int, lines: list[str]) -> list[tuple[int, str]]:
    found = ((at, re.match(r"\s*(?:def|class) (\w+)", line)) for at, line in enumerate(lines, start=first))
    return [(at, match[1]) for at, match in found if match]


def read_workload(path: Path, *, limit: int | None = None) -> Workload:
    """Read a file of conversations (JSON lines, or a JSON list), at most `limit` of them.

    Raises ConfigurationError, which names the line, for what cannot be replayed.
    """
    path = Path(path)
    if limit is not None and limit < 1:
        raise ConfigurationError(f"a limit is 1 or more conversations, got {limit}")
    rows = rows_of(path)
    first = next(rows, None)
    if first is None:
        raise ConfigurationError(f'{path} holds no conversation: expected one JSON object with "messages" per line')
    changes: Counter[str] = Counter()
    conversations = islice((_conversation(where, row, changes) for where, row in chain([first], rows)), limit)
    return Workload(
        name=path.name,
        conversations=tuple(conversations),
        notes=tuple(f"{change} ({count} times)" for change, count in sorted(changes.items())),
        source=f"the file {path.name}",
    )


def _conversation(where: str, row: Any, changes: Counter[str]) -> Conversation:
    if not isinstance(row, dict) or "messages" not in row:
        wanted = 'an object with a list of chat messages under "messages"'
        raise ConfigurationError(f"{where}: expected {wanted}, got {described(row)}")
    messages, tools = row["messages"], row.get("tools") or []
    if not isinstance(messages, list):
        raise ConfigurationError(f'{where}: "messages" is not a list of chat messages, but {described(messages)}')
    if not messages:
        raise ConfigurationError(f'{where}: "messages" is empty')
    if not isinstance(tools, list) or not all(isinstance(each, dict) and "type" in each for each in tools):
        wanted = 'a list of objects such as {"type": "function", "function": …}'
        raise ConfigurationError(f"{where}: expected tools as {wanted}, got {described(tools)}")
    try:
        cleaned = sendable(messages, changes)
    except UnusableMessageError as error:
        raise ConfigurationError(f"{where}: {error}") from error
    name = next((str(row[key]) for key in ("run", "id", "name") if row.get(key)), where.rpartition(", ")[2])
    return Conversation(name=name, messages=cleaned, tools=tuple(tools))
