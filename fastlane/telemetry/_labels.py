"""Keep the labels of metrics few: a text that an application or a provider made up is one label of a limited number."""

from __future__ import annotations

from typing import Any, Final

OTHER: Final = "_OTHER"
"""Stands for every value beyond those, by the word that the semantic conventions have for it in `error.type`."""

MOST_VALUES: Final = 200
"""Of one label in one process. A backend keeps every combination of labels that it has ever seen."""

MOST_CHARACTERS: Final = 128


class Labels:
    """The values that each label has taken in this process. From any thread."""

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._most = most
        self._seen: dict[str, set[str]] = {}

    def limited(self, label: str, value: Any) -> str:
        """The value where it is one of the first `most` of its label, and "_OTHER" where it is not.

        What is no text, or too long to be a name, is "_OTHER" too.
        """
        seen = self._seen.get(label)
        if seen is None:
            seen = self._seen.setdefault(label, set())
        try:
            if value in seen:
                return value  # type: ignore[no-any-return] # only texts are in there
        except TypeError:
            return OTHER
        if type(value) is not str or not value or len(value) > MOST_CHARACTERS or len(seen) >= self._most:
            return OTHER
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:  # half a character, which no exporter can write
                return OTHER
        seen.add(value)
        return value
