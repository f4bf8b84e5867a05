"""Lay out a request for the provider's cache: its messages as declared, how long to keep it, and where prefixes end.

Pure functions of a call and of facts. What the caller has put there stays, and no marks are put where facts do not say
that the model takes them: a model that does not know these fields may refuse the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from operator import is_not
from typing import TYPE_CHECKING, Any, Final

from fastlane.engine.call import Call
from fastlane.protocol.endpoints import CHAT, PROMPT_FIELDS, RESPONSES
from fastlane.protocol.prompt_marks import LEADING_ROLES, Placement
from fastlane.providers.facts import value_of

if TYPE_CHECKING:
    from fastlane.providers import ProviderFacts

_TEXT_PART: Final = {CHAT: "text", RESPONSES: "input_text"}
# Content parts that may carry a mark; in /responses what the model has said itself ("output_text") may not.
_PARTS: Final = (
    "text", "image_url", "input_audio", "file", "refusal", "input_text", "input_image", "input_file",
)  # fmt: skip


def laid_out(call: Call) -> Call:
    """Return the call with its messages in the order that was declared."""
    from .prompts import arrange

    name = PROMPT_FIELDS[call.endpoint]
    messages = call.body.get(name)
    if not isinstance(messages, list) or call.placements is None:
        return call
    arranged, placements = arrange(messages, call.placements)
    if len(arranged) != len(messages) or any(map(is_not, arranged, messages)):
        said = f"PromptCache laid out {name} as declared: stable, session, volatile"
        call = call.with_body(said, **{name: arranged})
    return call.replaced(placements=placements)


def takes_marks(model: str | None, facts: ProviderFacts) -> bool:
    """Return whether facts say that a model takes explicit breakpoints and what goes with them."""
    known = value_of(facts.cache.explicit_models)
    return model is not None and known is not None and any(fnmatchcase(model, pattern) for pattern in known)


def with_retention(call: Call, retention: str) -> Call:
    """Return the call that asks its provider to keep the prompt for `retention`, as the provider writes it ("12h").

    Where each breakpoint says its own lifetime, breakpoints are placed for it. Where the provider has no field for it,
    does not take that value at this endpoint or from this model, the body stays as it is, and `changes` say so.
    """
    facts, body = call.facts, call.body
    field = None if facts is None else value_of(facts.cache.retention_field)
    head, _, rest = (field or "").partition(".")
    is_mark = facts is not None and head == value_of(facts.cache.breakpoints)
    if (
        facts is None
        or field is None
        or not (_may_mark(call, facts) and _takes_value(call.endpoint, facts, field, retention))
        or (is_mark and call.endpoint not in _TEXT_PART)
    ):
        said = (
            f"PromptCache did not ask for a retention of {retention!r:.80}: the provider is not known to take it here"
        )
        return call.replaced(changes=(*call.changes, said))
    if is_mark:
        return with_breakpoints(call, retention)
    given = body.get(head)
    if given is not None and (not rest or not isinstance(given, Mapping) or rest in given):
        return call
    if given is None and head in call.refused:
        return call
    asked = call.with_body(
        f"PromptCache set {field} to {retention}", **{head: {**(given or {}), rest: retention} if rest else retention}
    )
    return asked if head in body else replace(asked, optional=(*call.optional, head))


def with_breakpoints(call: Call, retention: str | None = None) -> Call:
    """Return the call with the ends of its stable prefixes marked, where its provider has marks.

    Where facts know the provider's marks and not which models take them, as behind a proxy, they are placed as well.
    With `retention` each mark asks for that lifetime.
    """
    if call.facts is None or not _may_mark(call, call.facts):
        return call
    placed = place_breakpoints(call.endpoint, call.body, call.placements, call.facts, retention)
    if placed is None:
        return call
    name, items, at = placed
    where = ", ".join(f"{name}[{index}]" for index in at)
    lifetime = "" if retention is None else f" for {retention}"
    said = f"PromptCache put {value_of(call.facts.cache.breakpoints)} at the end of {where}{lifetime}"
    return call.with_body(said, **{name: items})


def place_breakpoints(
    endpoint: str,
    body: Mapping[str, Any],
    placements: Sequence[Placement | None] | None,
    facts: ProviderFacts,
    retention: str | None = None,
) -> tuple[str, list[Any], list[int]] | None:
    """Mark the ends of the stable prefix and of the session.

    Returns the field of the messages, the messages with the marks, and which have one. None if the caller has marks
    already, where facts have no such field, or there is nothing to mark. A session's end is marked twice: where it ends
    now, and where it ended with the last call, so that what that call wrote is found. A message whose content is a text
    gets a list of one part instead, which the model reads alike. Where the message that would be marked cannot be, the
    latest before it that can is. `placements` says of each message how long it stays; where it is None, the leading
    system and developer messages are taken to be stable, and the rest to be of the session.
    """
    name, kind = PROMPT_FIELDS.get(endpoint, ""), _TEXT_PART.get(endpoint)
    field, value = value_of(facts.cache.breakpoints), value_of(facts.cache.breakpoint_value)
    items = body.get(name)
    if kind is None or field is None or value is None or not isinstance(items, list) or not items:
        return None
    if field in body or any(_is_marked(item, field) for item in items):
        return None
    mark = dict(value)
    if retention is not None:
        mark[(value_of(facts.cache.retention_field) or "").partition(".")[2]] = retention
    places: list[int] = []
    for end in _ends(items, placements):
        at = next((index for index in range(end, -1, -1) if _can_carry(items[index], kind)), None)
        if at is not None and at not in places:
            places.append(at)
    places.sort()
    if not places:
        return None
    changed = list(items)
    for at in places:
        content = items[at]["content"]
        parts = [{"type": kind, "text": content}] if isinstance(content, str) else list(content)
        changed[at] = {**items[at], "content": [*parts[:-1], {**parts[-1], field: dict(mark)}]}
    return name, changed, places


def _ends(items: Sequence[Any], placements: Sequence[Placement | None] | None) -> list[int]:
    """Return where prefixes end, the most useful first: the stable one's, the session's, and the session's before."""
    if placements is None or len(placements) != len(items):
        leading = next((at for at, item in enumerate(items) if _role(item) not in LEADING_ROLES), len(items))
        stable, session = leading - 1, len(items) - 1
    else:
        # What nothing was said of is of the session. A volatile part ends what can be read again by another call.
        volatile = next((at for at, one in enumerate(placements) if one == "volatile"), len(items))
        stable = next((at for at, one in enumerate(placements) if one != "stable"), len(items)) - 1
        session = volatile - 1
    ends = [stable, session] if session > stable else [stable]
    answer = next((at for at in range(session, stable, -1) if _role(items[at]) == "assistant"), None)
    while answer is not None and answer > stable and _role(items[answer]) == "assistant":
        answer -= 1
    if answer is not None and answer > stable:
        ends.append(answer)
    return [end for end in ends if end >= 0]


def _role(item: Any) -> str | None:
    """Return who speaks; what the model has asked for in /responses ("function_call") is the assistant's."""
    if not isinstance(item, Mapping):
        return None
    role, kind = item.get("role"), item.get("type")
    if isinstance(role, str):
        return role
    return None if not isinstance(kind, str) or kind.endswith("_output") else "assistant"


def _can_carry(item: Any, kind: str) -> bool:
    if not isinstance(item, Mapping) or (kind == "input_text" and _role(item) == "assistant"):
        return False
    content = item.get("content")
    last = content[-1] if isinstance(content, list) and content else None
    if isinstance(last, Mapping):
        return last.get("type") in _PARTS and last.get("text") != ""
    return isinstance(content, str) and bool(content)  # an empty text part is refused by some


def _is_marked(item: Any, field: str) -> bool:
    if not isinstance(item, Mapping):
        return False
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    return field in item or any(isinstance(part, Mapping) and field in part for part in parts)


def _may_mark(call: Call, facts: ProviderFacts) -> bool:
    """Return whether the model takes the provider's marks: where facts name no models, the caller has asked for it."""
    return value_of(facts.cache.explicit_models) is None or takes_marks(call.model, facts)


def _takes_value(endpoint: str, facts: ProviderFacts, field: str, value: str) -> bool:
    by_endpoint = value_of(facts.cache.retention_values.get(endpoint))
    if by_endpoint is not None:
        return value in by_endpoint
    accepted = value_of(facts.parameters.get(field))
    return accepted is True or (isinstance(accepted, tuple) and value in accepted)
