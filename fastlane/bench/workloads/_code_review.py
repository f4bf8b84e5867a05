"""The built-in workload: an agent that reviews modules of the running Python's standard library."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import PurePosixPath
from random import Random

from ._messages import Message
from ._talk import Talk, tool
from ._workload import Conversation, Workload

# Single source files of 15 to 125 kB on CPython 3.11 to 3.14 that are neither frozen into the interpreter nor left
# out by distributions. The order mixes sizes, so that a run that ends early has seen short and long histories.
MODULES = (
    "http.client", "heapq", "argparse", "selectors", "subprocess", "smtplib", "gzip", "threading", "textwrap",
    "difflib", "weakref", "dataclasses", "tarfile", "pprint", "configparser", "socketserver", "http.server", "random",
    "urllib.request", "uuid", "statistics", "tempfile", "optparse", "plistlib", "inspect", "wave", "logging.handlers",
    "mimetypes", "ipaddress", "ftplib", "pickle",
)  # fmt: skip

# About what file-reading tools of coding agents return at a time.
_PIECE_CHARACTERS = 6_000

_SYSTEM = """You are a code reviewer with twenty years of experience. You review one module at a time.

How you work
- Read the whole file before you judge it: call read_file for one range of lines after the other.
- Look for errors first: wrong results, leaks of files, sockets and locks, races, exceptions that hide other exceptions,
  inputs that were not thought of (empty, very large, not ASCII, negative, None).
- Then look at the interface: names that mislead, arguments in an unusual order, defaults that surprise, return values
  of more than one type, behaviour that the documentation does not mention.
- Then look at cost: work that is repeated in a loop, copies of large data, quadratic searches, locks held too long.
- Leave style alone unless it hides an error. The project's formatter takes care of it.

How you report
- Leave each finding as a comment on the line it is about. One finding, one comment, at most four sentences.
- Say what happens, with which input, and what should happen. Propose the smallest change that repairs it.
- Do not praise, do not repeat the code, do not guess: where you are not sure, search for the callers first.
- Grade each finding: blocker, major, minor or question.
- When the author asks back, look again at the code before you answer. You may be wrong; say so when you were.
- End with a summary: what must change before the merge, what can wait, and what you have not looked at.
"""


TOOLS = (
    tool(
        "read_file",
        "Return lines of a file, each with its number. Long ranges are cut off: read large files in several calls.",
        path=("string", "Path of the file from the repository's root, with forward slashes."),
        start_line=("integer", "First line to return, counted from 1."),
        end_line=("integer", "Last line to return. May lie beyond the end of the file."),
    ),
    tool(
        "search",
        "Return the lines of a file that match a regular expression, each with its number.",
        path=("string", "Path of the file or folder to search."),
        pattern=("string", "Regular expression in Python's syntax, matched anywhere in a line."),
    ),
    tool(
        "comment",
        "Leave a review comment on one line. The author sees it when the review is finished.",
        path=("string", "Path of the file that the comment is about."),
        line=("integer", "Line that the comment is about, counted from 1."),
        severity=("string", "One of blocker, major, minor, question."),
        body=("string", "The finding and the proposed change, at most four sentences, in Markdown."),
    ),
    tool("list_files", "Return the paths of all files of a folder.", path=("string", "Path of the folder.")),
    tool(
        "run_tests",
        "Run the tests of one module and return the last 200 lines of their output.",
        path=("string", "Path of the test module, or of a folder of test modules."),
        keyword=("string", "Run only tests whose names contain this word; empty for all."),
    ),
    tool(
        "finish_review",
        "Hand in the review with all comments left so far.",
        verdict=("string", "One of approve, comment, request_changes."),
        summary=("string", "What must change, what can wait, and what was not looked at."),
    ),
)

_FINDINGS = (
    (
        "`{name}` (line {line}) trusts its caller: an empty or negative argument passes the first check and "
        "fails later with an error that does not name the argument. Check it at the top and say which value "
        "was expected."
    ),
    (
        "`{name}` (line {line}) leaves its state half changed when an exception leaves it in the middle: the "
        "next call on the same object sees it. Build the new value first, and assign it in one step at the "
        "end."
    ),
    (
        "In `{name}` (line {line}) the condition is tested again on every round of the loop although nothing "
        "in the loop can change it. With large inputs this is most of the cost; move it out of the loop."
    ),
    (
        "`{name}` (line {line}) returns None in one branch and a value in the others, which its documentation "
        "does not mention. Callers that go on with the result fail far from here. Raise, or document it."
    ),
    (
        "`{name}` (line {line}) catches more than it can repair, so that a typing error in the block looks "
        "like a missing value. Catch the one exception that is meant, and let the others through."
    ),
)


def code_review() -> Workload:
    """Return one review for each of `MODULES`: the same for the same Python, on every machine."""
    conversations: list[Conversation] = []
    missing: list[str] = []
    for module in MODULES:
        source = source_of(module)
        if source is None:
            missing.append(module)
        else:
            conversations.append(
                Conversation(name=f"review {module}", messages=tuple(_review(module, source)), tools=TOOLS)
            )
    notes = (f"this Python has no source text of {', '.join(missing)}",) if missing else ()
    return Workload(name="code-review", conversations=tuple(conversations), notes=notes)


def source_of(module: str) -> str | None:
    """Return the source text of a module of the standard library; None where this Python has none."""
    spec = find_spec(module)
    get_source = getattr(spec.loader, "get_source", None) if spec else None
    return get_source(module) if get_source else None


def _review(module: str, source: str) -> list[Message]:
    random = Random(module)
    path = str(PurePosixPath("Lib", *module.split(".")).with_suffix(".py"))
    pieces = list(_pieces(source.splitlines()))[: random.randint(5, 7)]
    names = [found for first, piece in pieces for found in _definitions(first, piece)] or [(1, module)]
    talk = Talk()
    talk.says("system", _SYSTEM)
    talk.says("user", f"Please review {path} before we release it. Its tests pass. I care most about wrong results.")
    for number, (first, piece) in enumerate(pieces, start=1):
        plan = f"I read {path} from its start, in pieces, before I judge it." if number == 1 else None
        text = "\n".join(f"{line:>5}  {text}" for line, text in enumerate(piece, start=first))
        talk.calls_tool("read_file", text, plan, path=path, start_line=first, end_line=first + len(piece) - 1)
        if number % 2 == 0:
            line, name = random.choice(_definitions(first, piece) or names)
            body = _finding(random.choice(_FINDINGS), name, line)
            saved = f"comment on line {line} saved"
            talk.calls_tool("comment", saved, path=path, line=line, severity="major", body=body)
    line, name = random.choice(names)
    talk.says("assistant", " ".join(_finding(text, name, line) for text in random.sample(_FINDINGS, 2)))
    talk.says("user", f"About `{name}`: who calls it? I thought that only this module does. Please look again.")
    matches = [f"{at:>5}  {text}" for at, text in enumerate(source.splitlines(), start=1) if name in text]
    talk.calls_tool("search", "\n".join(matches[:40]) or "no line matches", path=path, pattern=rf"\b{name}\b")
    answer = _finding(random.choice(_FINDINGS), name, line)
    talk.says("assistant", f"`{name}` appears on {len(matches)} lines of {path}. {answer}")
    talk.says("user", "Agreed. Please summarise what must change before the merge, and what can wait.")
    talk.says("assistant", " ".join(_finding(text, name, line) for text in _FINDINGS[2:]))
    return talk.messages


def _finding(text: str, name: str, line: int) -> str:
    return text.format(name=name, line=line)


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
