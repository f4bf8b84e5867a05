"""Built-in conversations of a coding agent: an issue, files viewed by windows, edits that make views obsolete."""

from __future__ import annotations

import re
from random import Random

from ._code_review import MODULES, source_of
from ._talk import Talk, tool
from ._workload import Conversation

_WINDOW_LINES = 100

_SYSTEM = """You work in a repository by calling tools. Somebody has written an issue; you change the code to solve it.

- Look before you change: find the file, open it, and read the lines around the place that the issue is about.
- A view shows {window} lines, each with its number. Go to a line to see others. What you have seen before an edit has
  other line numbers after it, so look again before you edit once more.
- An edit replaces whole lines. Give the text with its indentation; an edit that does not parse is refused and shown.
- Reproduce what the issue says with a script of your own before you edit, and run that script again afterwards.
- Change as little as is needed. Leave tests, formatting and names alone unless the issue is about them.
- One call at a time: wait for what it says. A command that takes longer than a minute is stopped.
- When the script does what the issue asks for, delete it, run the tests of the module, and submit.

You write one short paragraph on what you see and what you do next before each call."""

TOOLS = (
    tool("find", "Return files whose path has a word in it.", word=("string", "Part of a path.")),
    tool("search", "Return lines of a file that match a regular expression.", path=("string", "The file."),
         pattern=("string", "In Python's syntax.")),
    tool("open", "Open a file and show a window of it.", path=("string", "The file."), line=("integer", "Its middle.")),
    tool("edit", "Replace lines of the open file and show the window around them.",
         first=("integer", "First line that is replaced."), last=("integer", "Last line that is replaced."),
         text=("string", "What stands there afterwards.")),
    tool("run", "Run a command in the shell and return what it prints.", command=("string", "One line.")),
    tool("submit", "Hand the change in."),
)  # fmt: skip

_THOUGHTS = (
    "The traceback ends in `{name}`. I open the file there to see what it does with an empty argument.",
    "This window begins too late. I go up to where `{name}` is defined, and read it from its first line.",
    "`{name}` tests its argument only after it has used it. I move the test to the top and leave the rest as it is.",
    "The edit went through. I run the script again to see whether `{name}` now says what the issue asks for.",
    "The script still fails, one line further down. The same test is missing there, so I look at it once more.",
    "Both cases behave now. I run the module's own tests before I hand this in.",
)


def coding_agent(number: int, seed: int) -> Conversation:
    """Return conversation `number`: the same for the same Python."""
    random = Random(f"coding-agent/{seed}/{number}")
    module, lines = _module(number)
    path = f"Lib/{module.replace('.', '/')}.py"
    found = ((at, re.match(r"\s*(?:def|class) (\w+)", line)) for at, line in enumerate(lines))
    places = [(at, match[1]) for at, match in found if match]
    at, name = random.choice(places)
    talk = Talk()
    talk.says("system", _SYSTEM.format(window=_WINDOW_LINES))
    talk.says("user", _issue(module, path, lines, at, name, random))
    talk.calls_tool("find", f"{path}\nLib/test/test_{module.replace('.', '_')}.py", "I look for the file.", word=module)
    most = min(max(round(random.gauss(22, 6)), 10), 30)
    current = list(lines)
    while len(talk.messages) < most - 4:
        thought = random.choice(_THOUGHTS).format(name=name)
        # It reads before it does anything else.
        kind = "open" if len(talk.messages) < 8 else random.choice(("open", "open", "edit", "run", "search"))
        if kind == "open":
            middle = max(1, at + random.randrange(-60, 60))
            talk.calls_tool("open", _view(path, current, middle), thought, path=path, line=middle)
        elif kind == "edit":
            indent = current[at][: len(current[at]) - len(current[at].lstrip())]
            text = f"{indent}    # checked first: {random.randrange(100, 999)}"
            current.insert(min(at + 1, len(current)), text)
            # The same window as before but for a line or two: what the earlier view shows is obsolete.
            talk.calls_tool("edit", _view(path, current, at), thought, first=at + 1, last=at + 1, text=text)
        elif kind == "search":
            matches = [f"{row + 1}: {line}" for row, line in enumerate(current) if name in line]
            talk.calls_tool("search", "\n".join(matches[:30]) or "nothing", thought, path=path, pattern=name)
        else:
            talk.calls_tool("run", _traceback(path, current, at, name), thought, command="python reproduce.py")
    talk.calls_tool("run", f"Ran {random.randrange(12, 400)} tests in 1.{random.randrange(10, 99)}s\n\nOK",
                    _THOUGHTS[-1], command=f"python -m unittest test.test_{module}")  # fmt: skip
    talk.says("assistant", f"`{name}` now checks its argument first; the script and the tests pass. I hand this in.")
    return Conversation(name=f"coding agent {number}", messages=tuple(talk.messages), tools=TOOLS)


def _module(number: int) -> tuple[str, list[str]]:
    """A module of the running Python, with its lines; those without source are passed over."""
    for step in range(len(MODULES)):
        module = MODULES[(number + step) % len(MODULES)]
        source = source_of(module)
        if source is not None:
            return module, source.splitlines()
    # A Python without any source text: words in the form of code.
    from ._text import words

    return "words", [f"def {word}(text):\n    return {word!r}" for word in words("code", 400).split()]


def _issue(module: str, path: str, lines: list[str], at: int, name: str, random: Random) -> str:
    quoted = "\n".join(lines[max(0, at - 5) : at + random.randrange(20, 50)])
    return (
        f"`{module}.{name}` fails for an empty argument\n\nWith Python's current version I call `{name}` with what a "
        f"user typed, which may be nothing. I expect an error that names the argument. What I get is this:\n\n```\n"
        f"{_traceback(path, lines, at, name)}\n```\n\nThe place is in `{path}`:\n\n```python\n{quoted}\n```\n\n"
        "It has been so for a while, and worked by luck until callers began to pass the value on. Please make it say "
        "what is wrong, and keep what it does for every other argument. Tests exist for the usual cases only."
    )


def _traceback(path: str, lines: list[str], at: int, name: str) -> str:
    shown = [
        f'  File "{path}", line {row + 1}, in {name}\n    {lines[row].strip()}'
        for row in range(at, min(at + 4, len(lines)))
    ]
    return "Traceback (most recent call last):\n" + "\n".join(shown) + "\nIndexError: list index out of range"


def _view(path: str, lines: list[str], middle: int) -> str:
    first = max(0, min(middle - _WINDOW_LINES // 2, len(lines) - _WINDOW_LINES))
    shown = "\n".join(f"{row}:{line}" for row, line in enumerate(lines[first : first + _WINDOW_LINES], start=first + 1))
    return f"[{path}: {len(lines)} lines in all]\n({first} lines above)\n{shown}"
