"""A function written line by line as Python source, with the objects that it names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """The lines of one function and the names that they use; indented by blocks."""

    def __init__(self, header: str) -> None:
        self.names: dict[str, Any] = {}
        self.lines = [header]
        self._depth = 1

    def line(self, text: str) -> None:
        """Add one line at the present depth."""
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Add the line that opens a block, and what is added meanwhile inside it."""
        self.line(opening)
        self._depth += 1
        added = len(self.lines)
        yield
        if len(self.lines) == added:
            self.line("pass")
        self._depth -= 1

    def name(self, kind: str, value: Any = None) -> str:
        """A name of its own for a value, or for a variable of the function."""
        made = f"{kind}_{len(self.names)}"
        self.names[made] = value
        return made

    def late(self, kind: str, make: Callable[[], Callable[[Any], Any]]) -> str:
        """A name for a function of one argument that is made when it is called for the first time."""
        name = self.name(kind)

        def first(value: Any) -> Any:
            # Two threads may both make it: either is as good, and the last one stays.
            made = self.names[name] = make()
            return made(value)

        self.names[name] = first
        return name

    @property
    def text(self) -> str:
        """The source as it stands."""
        return "\n".join(self.lines) + "\n"

    def compiled(self, title: str) -> Any:
        """The function, named `made` in the source; `title` stands in tracebacks."""
        # The text is made of names of openai's fields alone, each written as its repr: nothing that came over a wire.
        exec(compile(self.text, f"<fastlane: {title}>", "exec"), self.names)  # noqa: S102
        return self.names["made"]
