"""Write docs/providers.md: every fact with its evidence, its date and where it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from ._load import packaged
from ._registry import UNKNOWN, facts_named, places
from ._schema import Fact, ProviderFacts


def page() -> str:
    """Return the page."""
    known = [facts_named(slug) for slug in (*places(), UNKNOWN)]
    in_order = sorted(known, key=lambda facts: (facts.slug == UNKNOWN, facts.name.lower()))
    sections = [_section(facts) for facts in in_order]
    return "\n".join([packaged("introduction.md").decode(), _comparison(in_order), *sections])


def _comparison(known: Iterable[ProviderFacts]) -> str:
    head = ["provider", *(name for name, _ in _COMPARED)]
    rows = [[f"[{facts.name}](#{facts.slug})", *(show(facts) for _, show in _COMPARED)] for facts in known]
    return (
        "## Compared\n\n"
        "`?`: looked for and not found. An empty place: nobody has looked.\n\n"
        f"{_row(head)}\n{_row(['---'] * len(head))}\n" + "".join(f"{_row(row)}\n" for row in rows)
    )


def _section(facts: ProviderFacts) -> str:
    found = [(keys, fact) for keys, fact in facts.all_facts() if fact.evidence != "not found"]
    missing = [(keys, fact) for keys, fact in facts.all_facts() if fact.evidence == "not found"]
    lines = [f"## {facts.name} {{#{facts.slug}}}\n", *_where(facts)]
    if found:
        lines += ["| fact | value | evidence | checked |", "|---|---|---|---|"]
        lines += [_row([_name(keys), _value(fact.value), _evidence(fact), str(fact.checked)]) for keys, fact in found]
        lines.append("")
    notes = [f"- {_name(keys)}: {_prose(fact.note)}" for keys, fact in found if fact.note]
    if notes:
        lines += ["Notes:\n", *notes, ""]
    if missing:
        lines += ["Looked for and not found:\n"]
        lines += [f"- {_name(keys)}: {_prose(fact.note)} ({_looked_at(fact)})" for keys, fact in missing]
        lines.append("")
    return "\n".join(lines)


def _where(facts: ProviderFacts) -> list[str]:
    lines = [f"`{facts.slug}`"]
    if facts.base_url:
        lines[0] += f", base URL `{facts.base_url}`"
    if facts.documentation:
        lines[0] += f", [documentation]({facts.documentation})"
    place = places().get(facts.slug)
    if place is None:
        return [lines[0] + ". It holds wherever nothing else does.\n"]
    known_by = []
    if place.hosts:
        known_by.append("host " + _texts(place.hosts))
    says = place.says
    known_by += [f"answer header `{name}` that matches `{pattern}`" for name, pattern in says.header.items()]
    if says.header_names:
        known_by.append("answer header " + _texts(says.header_names))
    if says.owned_by:
        known_by.append("`owned_by` " + _texts(says.owned_by) + " in its list of models")
    lines[0] += f". Known by {'; '.join(known_by)} ([source]({place.source}), {place.checked}). {_prose(place.note)}"
    return [lines[0].strip() + "\n"]


def _name(keys: tuple[str, ...]) -> str:
    return "`" + ".".join(f'"{key}"' if set(key) & set("./ ") else key for key in keys) + "`"


def _evidence(fact: Fact[Any]) -> str:
    return f"[{fact.evidence}]({_address(fact.source)})"


def _looked_at(fact: Fact[Any]) -> str:
    where = f"[looked at]({_address(fact.source)}), " if fact.source else ""
    return f"{where}{fact.checked}"


def _address(source: str | None) -> str:
    # What would end the link, or the cell that it stands in.
    return (source or "").replace("|", "%7C").replace("(", "%28").replace(")", "%29")


def _value(value: Any) -> str:
    if isinstance(value, BaseModel):
        value = {name: one for name, one in value if one is not None}
    if isinstance(value, Mapping):
        return "<br>".join(f"{key}: {_value(one)}" for key, one in value.items()) or "none"
    if isinstance(value, tuple):
        return ", ".join(_value(one) for one in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}".removesuffix(".0")
    return f"`{_cell(str(value))}`"


def _short(fact: Fact[Any] | None) -> str:
    if fact is None:
        return ""
    return "?" if fact.value is None else _value(fact.value)


def _first(*facts: Fact[Any] | None) -> str:
    shown = [_short(fact) for fact in facts]
    return next((one for one in shown if one not in ("", "?")), "?" if "?" in shown else "")


def _by_endpoint(table: Mapping[str, Fact[Any]], key: str | None = None) -> str:
    """One line for all endpoints that say the same, else one for each."""
    shown: dict[str, list[str]] = {}
    for endpoint, fact in table.items():
        value = fact.value
        if key is not None and value is not None:
            value = value.get(key, ())  # The answer has counts, and this one is not among them.
        shown.setdefault("?" if value is None else _value(value), []).append(f"`{endpoint}`")
    if len(shown) == 1:
        return next(iter(shown))
    return "<br>".join(f"{', '.join(endpoints)}: {text}" for text, endpoints in shown.items())


def _structured(facts: ProviderFacts) -> str:
    formats = _short(facts.structured.formats)
    strict = facts.structured.strict
    return f"{formats}, strict" if formats and strict is not None and strict.value else formats


_COMPARED: tuple[tuple[str, Callable[[ProviderFacts], str]], ...] = (
    ("request bodies", lambda facts: _by_endpoint(facts.encodings)),
    ("HTTP/2", lambda facts: _short(facts.http2)),
    ("cached from, tokens", lambda facts: _short(facts.cache.minimum_tokens)),
    ("cached for, s", lambda facts: _short(facts.cache.lifetime_s)),
    ("cache key", lambda facts: _first(facts.cache.key_field, facts.cache.key_header)),
    ("cached tokens", lambda facts: _by_endpoint(facts.usage, "cached")),
    ("tiers", lambda facts: _short(facts.tiers.values)),
    ("structured", _structured),
    ("batch", lambda facts: _short(facts.batch.path)),
)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _prose(text: str) -> str:
    """A note as Markdown that says nothing but its words."""
    return _cell(text).replace("<", "&lt;").replace("*", "\\*")


def _texts(texts: Iterable[str]) -> str:
    return " or ".join(f"`{text}`" for text in texts)
