"""The built-in workload: an agent that reviews modules of the running Python's standard library."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any, Final

from ._workload import Conversation, Message, Workload

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
