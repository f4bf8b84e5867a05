"""Send a schema with short names, and put the long ones back into the answer."""

from __future__ import annotations

import itertools
import json
import string
from collections.abc import Iterator, Mapping
from typing import Any

from fastlane.knowledge.tokens import Counter

from .by_content import ByContent
from .places import Key, Place, Places, UnreadableSchemaError, is_closed, key_of
from .positions import is_well_formed, rebuilt
from .references import resolve
from .short_text import Node, renamed, renamed_text

_MOST_SAVED = 1e12

_made: ByContent[Compacted | None] = ByContent()


class Compacted:
    """A schema with short names, and the way back.

    `schema` is what goes out, and what a stream is watched by. `saved_tokens` is what an answer with every property,
    and one item in each list, comes to less: of the output, which is paid and waited for token by token.
    `added_tokens` is what the schema itself comes to more, because the long names stand in its descriptions: of the
    input, where it can be cached.
    """

    __slots__ = ("_back", "_there", "added_tokens", "saved_tokens", "schema")

    def __init__(self, schema: dict[str, Any], there: Node, back: Node, *, saved: int, added: int) -> None:
        self.schema = schema
        self.saved_tokens = saved
        self.added_tokens = added
        self._there = there
        self._back = back

    def expand(self, text: str) -> str:
        """Return an answer's JSON text with the long names: numbers, escapes and white space stay as they are.

        A text that breaks off, or is no JSON, is expanded as far as it goes. Never raises.
        """
        return renamed_text(text, self._back)

    def alias(self, value: Any) -> Any:
        """Return a parsed value as the model would write it: `expand` gives it back."""
        return renamed(value, self._there)

    def __repr__(self) -> str:
        return f"Compacted(saved_tokens={self.saved_tokens}, added_tokens={self.added_tokens})"


def compact(schema: Mapping[str, Any], counter: Counter) -> Compacted | None:
    """Return a schema with short names for its properties and for the texts of its enums; None where none are shorter.

    Names are shortened where no other name can stand, and texts where no other text can, so that none is taken for a
    short one: what a map or a free text holds comes back untouched. Objects that name properties and do not say
    otherwise are closed on the wire. None, too, where the schema says in another way than by place what is valid
    (conditions, patterns of names, references along properties). `schema` is not changed. Either may come first, this
    or `wire_schema`: after it there is more that can be shortened, before it the short schema keeps every keyword.
    """
    about = counter.encoding, counter.exact, counter.ratio
    return _made.of(schema, about, lambda copy: _compacted(copy, counter))


def _compacted(schema: Mapping[str, Any], counter: Counter) -> Compacted | None:
    try:
        return _shortened(schema, counter) if is_well_formed(schema) else None
    except (RecursionError, UnreadableSchemaError):
        return None


def _shortened(schema: Mapping[str, Any], counter: Counter) -> Compacted | None:
    places = Places(schema)
    names, texts = _aliases(places, counter)
    if not names and not texts:
        return None
    written = _Writing(schema, names, texts).run()
    # Definitions that use others twice, and these again, can save more than a float holds.
    saved = min(_Saving(schema, names, texts, counter).of(schema), _MOST_SAVED)
    if round(saved) < 1:
        return None
    return Compacted(
        written,
        _nodes(places, names, texts),
        _nodes(places, names, texts, back=True),
        saved=round(saved),
        added=counter.text(json.dumps(written)) - counter.text(json.dumps(schema)),
    )


def _aliases(places: Places, counter: Counter) -> tuple[dict[str, str], dict[str, str]]:
    """What names and texts are called, in the order in which they are first met."""
    names = dict.fromkeys(name for place in places.all() for name in place.properties)
    texts = dict.fromkeys(text for place in places.all() for text in place.texts)
    for place in places.all():
        if place.others:
            _take_out(names, place.properties)
        if place.is_any_text:
            _take_out(texts, place.texts)
    taken = {name for place in places.all() for name in (*place.properties, *place.texts)}
    return _shorter(names, taken, counter), _shorter(texts, taken, counter)


def _take_out(some: dict[str, None], others: Any) -> None:
    for one in others:
        some.pop(one, None)


def _shorter(words: Mapping[str, None], taken: set[str], counter: Counter) -> dict[str, str]:
    free = (alias for alias in _identifiers() if alias not in taken)
    shorter: dict[str, str] = {}
    alias = next(free)
    for word in words:
        if counter.text(f'"{word}"') > counter.text(f'"{alias}"'):
            shorter[word] = alias
            alias = next(free)
    return shorter


def _identifiers() -> Iterator[str]:
    for length in itertools.count(1):
        yield from map("".join, itertools.product(string.ascii_lowercase, repeat=length))


def _nodes(places: Places, names: Mapping[str, str], texts: Mapping[str, str], *, back: bool = False) -> Node:
    """The places of a value with long names, or with `back` of one with short ones."""
    made: dict[Key, Node] = {}

    def node(schemas: tuple[Any, ...]) -> Node:
        key = key_of(schemas)
        if key in made:
            return made[key]
        made[key] = one = Node()
        place: Place = places.at(schemas)
        for name, below in place.properties.items():
            pair = name, (name if place.others else names.get(name, name))
            before, after = reversed(pair) if back else pair
            one.names[before] = after, node((*below, *place.others))
        if not place.is_any_text:
            pairs = [(text, texts[text]) for text in place.texts if text in texts]
            one.texts = {short: long for long, short in pairs} if back else dict(pairs)
        one.others = node(place.others) if place.others else None
        one.items = node(place.items) if place.items else None
        return one

    return node(places.top)


class _Writing:
    """The schema with short names, and in its descriptions what they stand for."""

    def __init__(self, root: Mapping[str, Any], names: Mapping[str, str], texts: Mapping[str, str]) -> None:
        self._root = root
        self._names = names
        self._texts = texts

    def run(self) -> dict[str, Any]:
        written: dict[str, Any] = self._schema(self._root)
        return written

    def _schema(self, schema: Any, path: str = "") -> Any:
        if not isinstance(schema, Mapping):
            return schema
        written: dict[str, Any] = {}
        meanings: dict[str, str] = {}
        for key, value in schema.items():
            if key == "properties":
                written[key] = self._properties(value, meanings)
            elif key == "required" and isinstance(value, list):
                written[key] = [self._names.get(name, name) for name in value]
            elif key == "enum" and isinstance(value, list):
                written[key] = [self._text(one, meanings) for one in value]
            elif key == "const":
                written[key] = self._text(value, meanings)
            elif key == "default" and not isinstance(value, dict | list):
                written[key] = self._text(value, {}) if "enum" in schema or "const" in schema else value
            elif key not in ("default", "discriminator", "examples"):
                written[key] = rebuilt(key, value, path, self._schema)
        if "properties" in schema and is_closed(schema):
            written["additionalProperties"] = False
        return _described(written, ", ".join(f"{short} = {long}" for short, long in meanings.items()))

    def _properties(self, properties: Mapping[str, Any], meanings: dict[str, str]) -> dict[str, Any]:
        written = {}
        for name, one in properties.items():
            short = self._names.get(name, name)
            new = self._schema(one)
            if short == name:
                pass
            elif isinstance(new, dict) and "$ref" not in new:
                new = _described(new, name, first=True)
            else:
                # Beside a reference many providers take nothing.
                meanings[short] = name
            written[short] = new
        return written

    def _text(self, value: Any, meanings: dict[str, str]) -> Any:
        if not isinstance(value, str) or value not in self._texts:
            return value
        meanings[self._texts[value]] = value
        return self._texts[value]


class _Saving:
    """How many tokens shorter an answer is."""

    def __init__(
        self, root: Mapping[str, Any], names: Mapping[str, str], texts: Mapping[str, str], counter: Counter
    ) -> None:
        self._root = root
        self._names = names
        self._texts = texts
        self._counter = counter
        # By reference; 0 while it is being worked out, for what leads back to itself.
        self._known: dict[str, float] = {}

    def of(self, schema: Any) -> float:
        if not isinstance(schema, Mapping):
            return 0.0
        total = 0.0
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference not in self._known:
                self._known[reference] = 0.0
                self._known[reference] = self.of(resolve(self._root, reference))
            total += self._known[reference]
        for name, one in schema.get("properties", {}).items():
            total += self._shorter(name, self._names) + self.of(one)
        for key in ("anyOf", "oneOf"):
            total += max(map(self.of, schema.get(key, ())), default=0.0)
        total += sum(map(self.of, schema.get("allOf", ())))
        total += self.of(schema.get("items"))
        values = [schema["const"]] if "const" in schema else schema.get("enum", ())
        shorter = [self._shorter(value, self._texts) for value in values if isinstance(value, str)]
        return total + (sum(shorter) / len(values) if values else 0.0)

    def _shorter(self, word: str, aliases: Mapping[str, str]) -> float:
        alias = aliases.get(word)
        return 0.0 if alias is None else float(self._counter.text(f'"{word}"') - self._counter.text(f'"{alias}"'))


def _described(schema: dict[str, Any], words: str, *, first: bool = False) -> dict[str, Any]:
    if not words:
        return schema
    said = schema.get("description")
    if not isinstance(said, str) or not said:
        return {**schema, "description": words}
    return {**schema, "description": f"{words}: {said}" if first else f"{said} {words}"}
