"""Lay out a request for the provider's cache: its messages as declared, how long to keep it, and where prefixes end.

Pure functions of a call and of facts. What the caller has put there stays, and no marks are put where facts do not say
that the model takes them: a model that does not know these fields may refuse the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from operator import is_not
from typing import TYPE_CHECKING, Any, NamedTuple

from fastlane.engine.call import Call
from fastlane.protocol.endpoints import PROMPT_FIELDS
from fastlane.protocol.prompt_marks import Placement

if TYPE_CHECKING:
    from fastlane.providers import ProviderFacts

# Four are the most that any provider writes, and OpenAI's own implicit one is among its four.
_MOST_PLACED = 3

_TEXT_PART = {"/chat/completions": "text", "/responses": "input_text"}
# Content parts that may carry a mark; in /responses what the model has said itself ("output_text") may not.
_PARTS = ("text", "image_url", "input_audio", "file", "refusal", "input_text", "input_image", "input_file")


class Placed(NamedTuple):
    """What to set in a body, and what that does, in words."""

    fields: dict[str, Any]
    said: str


def laid_out(call: Call, *, order_tools: bool) -> Call:
    """Return the call with its messages in the order that was declared, and its tools with their keys in order."""
    from .prompts import arrange, canonical, ordered_tools

    name = PROMPT_FIELDS[call.endpoint]
    messages, tools = call.body.get(name), call.body.get("tools")
    if isinstance(messages, list) and call.placements is not None:
        arranged, placements = arrange(messages, call.placements)
        if len(arranged) != len(messages) or any(map(is_not, arranged, messages)):
            said = f"PromptCache laid out {name} as declared: stable, session, volatile"
            call = call.with_body(said, **{name: arranged})
        call = call.replaced(placements=placements)
    if isinstance(tools, list):
        # The order of properties is that in which models write arguments: `Prompt` is asked about it.
        written = canonical(tools, keep_property_order=True)
        written = ordered_tools(written) if order_tools else written
        if repr(written) != repr(tools):  # equal dictionaries may have their keys in another order
            how = "in the order of their names, their keys in order" if order_tools else "with their keys in order"
            call = call.with_body(f"PromptCache wrote the tools {how}", tools=written)
    return call


def with_marks(call: Call, retention: str | None, *, breakpoints: bool) -> Call:
    """Return the call with what its provider is to be asked to keep, and for how long."""
    if retention is not None:
        call = with_retention(call, retention)
    return with_breakpoints(call) if breakpoints else call


def takes_marks(model: str | None, facts: ProviderFacts) -> bool:
    """Whether facts say that a model takes explicit breakpoints and what goes with them."""
    known = facts.cache.explicit_models
    if model is None or known is None or known.value is None:
        return False
    return any(fnmatchcase(model, pattern) for pattern in known.value)


def with_retention(call: Call, retention: str) -> Call:
    """Return the call that asks its provider to keep the prompt for `retention` ("12h"), where it takes that.

    Where each breakpoint says its own lifetime, breakpoints are placed for it. Where the provider is not known to take
    it, the body stays as it is, and `changes` say so.
    """
    facts = call.facts
    if facts is None or not _takes_retention(call, facts, retention):
        said = (
            f"PromptCache did not ask for a retention of {retention!r:.80}: the provider is not known to take it here"
        )
        return call.replaced(changes=(*call.changes, said))
    placed = place_retention(call.endpoint, call.body, facts, retention)
    if placed is not None:
        added = tuple(name for name in placed.fields if name not in call.body)
        if not call.refused.isdisjoint(added):
            return call
        asked = call.with_body(f"PromptCache {placed.said}", **placed.fields)
        return replace(asked, optional=(*call.optional, *added))
    placed = place_breakpoints(call.endpoint, call.body, call.placements, facts, retention=retention, asked=True)
    return call if placed is None else call.with_body(f"PromptCache {placed.said}", **placed.fields)


def with_breakpoints(call: Call) -> Call:
    """Return the call with the ends of its stable prefixes marked, where its provider has marks.

    Where facts know the provider's marks and not which models take them, as behind a proxy, they are placed as well.
    """
    if call.facts is None:
        return call
    placed = place_breakpoints(call.endpoint, call.body, call.placements, call.facts, asked=True)
    return call if placed is None else call.with_body(f"PromptCache {placed.said}", **placed.fields)


def place_retention(endpoint: str, body: Mapping[str, Any], facts: ProviderFacts, retention: str) -> Placed | None:
    """Return what asks to keep the prompt for `retention`, as the provider writes it ("12h", "24h").

    None where the provider has no field for it, does not take that value at this endpoint or from this model, where
    the caller has set the field, or where breakpoints say it (see `place_breakpoints`).
    """
    field = _value(facts.cache.retention_field)
    if field is None or not _may_be(endpoint, facts, field, retention) or not _model_may(body, facts):
        return None
    head, _, rest = field.partition(".")
    if head == _value(facts.cache.breakpoints):
        return None
    if not rest:
        return None if head in body else Placed({head: retention}, f"set {head} to {retention}")
    given = body.get(head)
    if given is None:
        given = {}
    # Deeper paths than two names nobody has.
    if not isinstance(given, Mapping) or rest in given or "." in rest:
        return None
    return Placed({head: {**given, rest: retention}}, f"set {field} to {retention}")


def place_breakpoints(
    endpoint: str,
    body: Mapping[str, Any],
    placements: Sequence[Placement | None] | None,
    facts: ProviderFacts,
    *,
    asked: bool = False,
    retention: str | None = None,
) -> Placed | None:
    """Return the messages or input items with the ends of the stable prefix and of the session marked.

    A session's end is marked twice: where it ends now, and where it ended with the last call, so that what that call
    wrote is found. A message whose content is a text gets a list of one part instead, which the model reads alike.
    Where the message that would be marked cannot be, the latest before it that can is. `placements` says of each
    message how long it stays; where it is None, the leading system and developer messages are taken to be stable, and
    the rest to be of the session. With `retention` each mark asks for that lifetime, or there is none.

    None where the caller has marks of his own, where facts have no such field or do not name the model among those
    that take it (`asked`: where facts name no models, the caller knows), or there is nothing to mark.
    """
    name = "input" if endpoint == "/responses" else "messages"
    kind = _TEXT_PART.get(endpoint)
    field, value = _value(facts.cache.breakpoints), _value(facts.cache.breakpoint_value)
    items = body.get(name)
    if kind is None or field is None or value is None or not isinstance(items, list) or not items:
        return None
    if not takes_marks(_model(body), facts) and not (asked and _value(facts.cache.explicit_models) is None):
        return None
    if field in body or any(_is_marked(item, field) for item in items):
        return None
    mark = dict(value)
    if retention is not None:
        lifetime = _value(facts.cache.retention_field) or ""
        head, _, rest = lifetime.partition(".")
        if head != field or not rest or not _may_be(endpoint, facts, lifetime, retention):
            return None
        mark[rest] = retention
    most = min(_value(facts.cache.most_breakpoints) or _MOST_PLACED, _MOST_PLACED)
    changed = list(items)
    places: list[int] = []
    for end in _ends(items, placements):
        at = next((index for index in range(end, -1, -1) if _can_carry(items[index], kind)), None)
        if at is not None and at not in places:
            places.append(at)
    for at in places[:most]:
        changed[at] = _marked(items[at], kind, field, mark)
    if not places:
        return None
    where = ", ".join(f"{name}[{at}]" for at in sorted(places[:most]))
    lifetime_said = "" if retention is None else f" for {retention}"
    return Placed({name: changed}, f"put {field} at the end of {where}{lifetime_said}")


def _ends(items: Sequence[Any], placements: Sequence[Placement | None] | None) -> list[int]:
    """Where prefixes end, the most useful first: the stable one's, the session's, and the session's one call ago."""
    if placements is None or len(placements) != len(items):
        leading = next((at for at, item in enumerate(items) if _role(item) not in {"system", "developer"}), len(items))
        stable, session = leading - 1, len(items) - 1
    else:
        # What nothing was said of is of the session. A volatile part ends what can be read again by another call.
        volatile = next((at for at, one in enumerate(placements) if one == "volatile"), len(items))
        stable = next((at for at, one in enumerate(placements) if one != "stable"), len(items)) - 1
        session = volatile - 1
    ends = [stable, session] if session > stable else [stable]
    said = next((at for at in range(session, stable, -1) if _role(items[at]) == "assistant"), None)
    while said is not None and said > stable and _role(items[said]) == "assistant":
        said -= 1
    if said is not None and said > stable:
        ends.append(said)
    return [end for end in ends if end >= 0]


def _role(item: Any) -> str | None:
    """Who speaks; what the model has asked for in /responses ("function_call", "reasoning") is the assistant's."""
    if not isinstance(item, Mapping):
        return None
    role = item.get("role")
    if isinstance(role, str):
        return role
    kind = item.get("type")
    return None if not isinstance(kind, str) or kind.endswith("_output") else "assistant"


def _can_carry(item: Any, kind: str) -> bool:
    if not isinstance(item, Mapping):
        return False
    if kind == "input_text" and _role(item) == "assistant":
        return False
    content = item.get("content")
    if isinstance(content, str):
        return bool(content)  # An empty text part is refused by some.
    return isinstance(content, list) and bool(content) and _part_can_carry(content[-1])


def _part_can_carry(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _PARTS and part.get("text") != ""


def _marked(item: Mapping[str, Any], kind: str, field: str, mark: dict[str, Any]) -> dict[str, Any]:
    content = item["content"]
    parts = [{"type": kind, "text": content}] if isinstance(content, str) else list(content)
    parts[-1] = {**parts[-1], field: dict(mark)}
    return {**item, "content": parts}


def _is_marked(item: Any, field: str) -> bool:
    if not isinstance(item, Mapping):
        return False
    content = item.get("content")
    within = content if isinstance(content, list) else ()
    return field in item or any(isinstance(part, Mapping) and field in part for part in within)


def _model(body: Mapping[str, Any]) -> str | None:
    model = body.get("model")
    return model if isinstance(model, str) else None


def _model_may(body: Mapping[str, Any], facts: ProviderFacts) -> bool:
    """Whether the model takes the provider's field for retention: where nobody says which do, the caller has asked."""
    return _value(facts.cache.explicit_models) is None or takes_marks(_model(body), facts)


def _takes_retention(call: Call, facts: ProviderFacts, retention: str) -> bool:
    """Whether facts say that this model takes this retention at this endpoint, whatever the caller has set."""
    field = _value(facts.cache.retention_field)
    if field is None or not _may_be(call.endpoint, facts, field, retention) or not _model_may(call.body, facts):
        return False
    return field.partition(".")[0] != _value(facts.cache.breakpoints) or call.endpoint in _TEXT_PART


def _may_be(endpoint: str, facts: ProviderFacts, field: str, value: str) -> bool:
    by_endpoint = _value(facts.cache.retention_values.get(endpoint))
    if by_endpoint is not None:
        return value in by_endpoint
    accepted = _value(facts.parameters.get(field))
    return accepted is True or (isinstance(accepted, tuple) and value in accepted)


def _value(fact: Any) -> Any:
    return None if fact is None else fact.value
