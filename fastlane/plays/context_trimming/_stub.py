"""One line in the place of a tool's output: which tool, asked what, how long the output was, and why it is gone."""

from __future__ import annotations

import json
from typing import Any

from fastlane.errors import ConfigurationError

from ._parts import ToolCall, attachments_of, text_of

STUB = "[{tool}({arguments}): {lines} lines, {characters} characters, {reason}]"
"""What stands in the place of an output that is left out, unless a setting says otherwise."""

SUPERSEDED = "left out because it was read again later"
DUPLICATE = "left out because a later output has the same"
STUBBED = "left out to save space"

_FIELDS = {"tool": "", "arguments": "", "lines": 0, "characters": 0, "reason": ""}
# A stub is worth a line, and no more: arguments stand in the call above it, too.
_LONGEST_VALUE = 40
_LONGEST_ARGUMENTS = 120
_LONGEST_NAME = 64
_LONGEST_TEMPLATE = 400


def checked_template(name: str, template: Any) -> str:
    """Return a template of a stub. Raises ConfigurationError naming `name` for one that cannot be filled in."""
    try:
        if isinstance(template, str) and 0 < len(template) <= _LONGEST_TEMPLATE and "\n" not in template:
            template.format(**_FIELDS)
            return template
    except (IndexError, KeyError, ValueError, AttributeError):
        pass
    fields = ", ".join(f"{{{field}}}" for field in _FIELDS)
    raise ConfigurationError(f"{name} takes one line of text with any of {fields}, got {template!r:.80}")


def stub(template: str, call: ToolCall | None, output: Any, reason: str) -> str:
    """Return the line for an output. Nothing of the output itself is in it."""
    text = text_of(output)
    attachments = attachments_of(output)
    return template.format(
        tool=_line(call.name if call is not None else "tool", _LONGEST_NAME),
        arguments=_line(_arguments(call.arguments) if call is not None else "", _LONGEST_ARGUMENTS),
        lines=text.count("\n") + 1 if text else 0,
        characters=len(text),
        reason=f"{attachments} pictures or files, {reason}" if attachments else reason,
    )


def _arguments(written: str) -> str:
    """The names of a call's arguments, with those of their values that are short."""
    try:
        given = json.loads(written)
    except ValueError:
        return ""
    if not isinstance(given, dict):
        return ""
    shown = []
    for name, value in given.items():
        if isinstance(value, list | dict):
            shown.append(name)
            continue
        short = json.dumps(value, ensure_ascii=False)
        shown.append(f"{name}={short}" if len(short) <= _LONGEST_VALUE else name)
    return ", ".join(shown)


def _line(text: str, longest: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
