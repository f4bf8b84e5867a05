"""What a provider's strict mode takes of a JSON schema, as its facts say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fastlane.providers import Fact
from fastlane.providers._schema import Structured

from .by_content import ByContent
from .limits import over_limits as over_limits
from .positions import is_well_formed
from .rewriting import Rewriting, Rules

_kept: ByContent[Wire | None] = ByContent()


class Wire(NamedTuple):
    """A schema as it goes out."""

    schema: Mapping[str, Any]
    """Not to be changed: it is kept for the next call."""
    dropped: tuple[str, ...]
    """Keywords that are not in it any more."""
    changed: tuple[str, ...]
    """Sentences that say what else is not as it was given, or could not be made as the provider wants it."""


def wire_schema(schema: Mapping[str, Any], structured: Structured | None, *, strict: bool) -> Wire:
    """Return what a provider takes of a schema, and what was done to it; the schema itself where that is nothing.

    `strict`: whether the request asks for it to be kept to (`strict: true`). Nothing is done for a request that does
    not, unless facts say that the provider goes by the schema anyway. `schema` is never changed.

    Every answer that is valid for what goes out but for the dropped keywords is valid for the schema, so that these are
    to be enforced by whoever reads the answer; save that open objects in a oneOf may overlap, and closed ones not. A
    property that is optional is made required where the provider takes no others, and keeps its own schema: it comes
    back as null only where that allows null. It stays optional where no answer would come to an end otherwise. What no
    wording of it makes acceptable is left as it is, and said: the provider's own error is clearer than a schema that
    means something else.

    A second call with equal content takes microseconds. Schemas that are no JSON are written anew each time.
    """
    rules = _rules(structured, strict=strict)
    return (_written(schema, rules) if rules is not None else None) or Wire(schema, (), ())


def closed_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema as strict mode keeps to it everywhere: no object has properties beyond those that are named."""
    found = _written(schema, _CLOSED)
    return schema if found is None else found.schema


_CLOSED = Rules(refused=frozenset(), closed=True, all_required=False, object_root=False, bare=False)


def _written(schema: Mapping[str, Any], rules: Rules) -> Wire | None:
    return _kept.of(schema, rules, lambda copy: _wire(copy, rules))


def _wire(schema: Mapping[str, Any], rules: Rules) -> Wire | None:
    """None where the schema can go as it is: also one that is none, of which the provider says so itself."""
    try:
        if not is_well_formed(schema):
            return None
        rewriting = Rewriting(schema, rules)
        written = rewriting.run()
        if written == schema and not rewriting.sentences:
            return None
    except RecursionError:  # nested too deeply to be read, and to be sent
        return None
    return Wire(written, tuple(rewriting.dropped), rewriting.sentences)


def _rules(structured: Structured | None, *, strict: bool) -> Rules | None:
    if structured is None or not (strict or _holds(structured.unasked)):
        return None
    refused = structured.refused_keywords
    rules = Rules(
        refused=frozenset(refused.value or ()) if refused is not None else frozenset(),
        closed=_holds(structured.closed_objects),
        all_required=_holds(structured.all_required),
        object_root=_holds(structured.object_root),
        bare=_holds(structured.bare_references),
    )
    return rules if any(rules) else None


def _holds(fact: Fact[bool] | None) -> bool:
    return fact is not None and fact.value is True
