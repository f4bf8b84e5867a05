"""Where a JSON text that is being read stands, and what its schema says of every part that begins or ends."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from fastlane.records.output import StopReason

from ..validation._reading_rules import NOT_LISTED, UNKNOWN_PROPERTY
from ..validation._schema_rules import missing_rule
from ._json_strings import some_begins_with
from ._nodes import Node

# An indented text has white space for every level: so much of it is no run.
_INDENT: Final = 8
# A problem's place is told to so many levels.
_MOST_LEVELS: Final = 8

spaces: Callable[..., re.Match[str]] = re.compile(r"[ \t\n\r]*").match  # type: ignore[assignment]
"""Match white space, which may be none."""


class Stop(Exception):  # noqa: N818 -- no error: how a step leaves the loop
    """The text is at its end, or cannot become valid."""

    def __init__(self, reason: StopReason, problem: str | None) -> None:
        self.reason = reason
        self.problem = problem


class Container:
    """An object or array that is open."""

    __slots__ = ("count", "is_object", "name", "names", "node", "seen")

    def __init__(self, node: Node, *, is_object: bool) -> None:
        self.node = node
        self.is_object = is_object
        self.count = 0
        """Items that have begun."""
        self.seen = 0
        """Bits of the properties that have begun."""
        self.name = ""
        """The property that has begun last."""
        limited = is_object and (node.most_properties is not None or node.least_properties)
        self.names: set[str] | None = set() if limited else None
        """All properties, where their number matters."""


class Reading:
    """One JSON text as far as it was read. Steps read on; what they find is told to the methods."""

    __slots__ = (
        "before",
        "container",
        "end",
        "held",
        "is_key",
        "kinds",
        "length",
        "literal",
        "most_length",
        "node",
        "number_is_cut",
        "open",
        "pieces",
        "spaces",
        "spaces_end",
        "start",
        "step",
        "string",
        "values",
        "whitespace_run",
    )

    def __init__(self, node: Node, whitespace_run: int, step: Step) -> None:
        self.whitespace_run = whitespace_run
        self.start = -1
        """Where the value begins; -1 where it has not."""
        self.end: int | None = None
        self.before = 0
        """Characters of the pieces before this one."""
        self.held = ""
        """The end of a piece, which means nothing without the next."""
        self.step = step
        """Reads on from here."""
        self.node = node
        """What is allowed of the value that has begun last, or comes next."""
        self.container: Container | None = None
        """The innermost that is open."""
        self.open: list[Container] = []
        """Those around it."""
        self.spaces = 0
        """White space with nothing in between, which came last before `spaces_end`."""
        self.spaces_end = 0
        self.is_key = False
        """Whether the string is a key."""
        self.values: tuple[str, ...] | None = None
        """The only texts that it may be."""
        self.string = ""
        """What there is of it, where only certain texts are allowed."""
        self.pieces: list[str] = []
        """The same of a key that may be any."""
        self.length = 0
        """Characters that there are of it; of a literal too."""
        self.most_length: int | None = None
        self.literal = ""
        """What there is of a number, or all that there will be of "true"."""
        self.number_is_cut = False
        """Whether the number is too long to be kept."""

    def invalid(self, rule: str, *, inside: bool = True) -> Stop:
        """Return what stops at this place: that of the value to come, or of the container that it would be in."""
        containers = self.open if self.container is None else [*self.open, self.container]
        steps: list[str] = []
        for container in containers if inside else containers[:-1]:
            if len(steps) == _MOST_LEVELS:
                steps.append("...")
                break
            if not container.is_object:
                steps.append(f"[{container.count - 1}]")
            else:
                # A name that the schema does not mention is text of the answer.
                name = (container.name or '""') if container.node.mentions(container.name) else "*"
                steps.append(f".{name}" if steps else name)
        return Stop("invalid", f"{''.join(steps) or '$'}: {rule}")

    def skip(self, text: str, at: int) -> int:
        """Return where white space ends. Raises Stop where it is a run."""
        end = spaces(text, at).end()
        run = end - at
        if self.before + at == self.spaces_end:
            run += self.spaces
        self.spaces, self.spaces_end = run, self.before + end
        if run > self.whitespace_run and run > _INDENT * len(self.open):
            raise Stop("whitespace", f"more than {self.whitespace_run} characters of white space between two tokens")
        return end

    def begin_string(self) -> None:
        """Begin a string that is a value."""
        self.is_key = False
        self.values = self.node.values
        self.most_length = self.node.most_length
        self.string = ""
        self.length = 0

    def begin_key(self, container: Container) -> None:
        """Begin the name of a property."""
        self.is_key = True
        self.values = container.node.names
        self.string = ""

    def add(self, text: str) -> None:
        """Take more of a string."""
        if self.values is not None:
            self.string += text
            if not some_begins_with(self.values, self.string):
                if self.is_key:
                    raise self.invalid(UNKNOWN_PROPERTY, inside=False)
                raise self.invalid(NOT_LISTED)
        elif self.is_key:
            self.pieces.append(text)
        else:
            self.length += len(text)
            if self.most_length is not None and self.length > self.most_length:
                raise self.invalid(f"longer than {self.most_length} characters")

    def end_string(self) -> None:
        """End a string that is a value."""
        if self.values is None:
            if self.length < self.node.least_length:
                raise self.invalid(f"shorter than {self.node.least_length} characters")
        elif self.string not in self.values:
            raise self.invalid(NOT_LISTED)
        elif self.container is not None and self.container.is_object:
            self.container.node = self.container.node.chosen(self.container.name, self.string)

    def end_key(self) -> None:
        """End the name of a property."""
        container = self.container
        assert container is not None
        if self.values is None:
            name = "".join(self.pieces)
            self.pieces.clear()
        else:
            name = self.string
        found = container.node.member(name)
        if found is None:
            raise self.invalid(UNKNOWN_PROPERTY, inside=False)
        self.node, bit, container.node = found
        container.seen |= bit
        container.name = name
        if container.names is not None:
            container.names.add(name)
            most = container.node.most_properties
            if most is not None and len(container.names) > most:
                raise self.invalid(f"more than {most} properties", inside=False)

    def enter(self, *, is_object: bool) -> None:
        """Begin an object or array."""
        if self.container is not None:
            self.open.append(self.container)
        self.container = Container(self.node, is_object=is_object)

    def leave(self) -> None:
        """End an object or array."""
        container = self.container
        assert container is not None
        node = container.node
        if container.is_object:
            missing = [names for required in node.required if (names := required & ~container.seen)]
            if missing and len(missing) == len(node.required):
                raise self.invalid(missing_rule(node.missing(container.seen)), inside=False)
            if container.names is not None and len(container.names) < node.least_properties:
                raise self.invalid(f"fewer than {node.least_properties} properties", inside=False)
        elif container.count < node.least_items:
            raise self.invalid(f"fewer than {node.least_items} items", inside=False)
        self.container = self.open.pop() if self.open else None

    def begin_item(self) -> None:
        """Begin an item of an array."""
        container = self.container
        assert container is not None
        node = container.node
        if node.most_items is not None and container.count >= node.most_items:
            raise self.invalid(f"more than {node.most_items} items", inside=False)
        self.node = node.item(container.count)
        container.count += 1


Step = Callable[[Reading, str, int], int]
"""Reads on from a place of a piece of text and returns where it stopped. Raises Stop."""
