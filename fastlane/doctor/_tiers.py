"""Which grades of service may be asked for, and which are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import openai

from ._answers import at_path
from ._findings import Group, MeasuredFact, ProviderFinding
from ._session import DoctorSession
from ._words import of_error, of_status

if TYPE_CHECKING:
    from ..providers import ProviderFacts

_GROUP: Group = "service tiers"
_USUAL_FIELD = "service_tier"
_USUAL_VALUES = ("auto", "default", "flex", "priority")
# A name that no provider has: whoever takes it does not look at the field.
MADE_UP = "fastlane-doctor"
PROMPT = "Say yes."
_REFUSALS = (400, 403, 404, 422)


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One request for a tier."""

    asked: str
    answered: str | None = None
    """What the answer said; None where it said nothing."""
    refused: int | None = None
    """The status of a refusal."""
    error: str | None = None
    """What went wrong otherwise, in words."""


def wanted(known: ProviderFacts | None) -> tuple[str, tuple[str, ...], str]:
    """The field by which a tier is asked for, the tiers to try, and where the answer says which it was."""
    tiers = known.tiers if known is not None else None
    field = tiers.field.value if tiers is not None and tiers.field is not None else None
    values = tiers.values.value if tiers is not None and tiers.values is not None else None
    path = tiers.answer_path.value if tiers is not None and tiers.answer_path is not None else None
    return field or _USUAL_FIELD, values or _USUAL_VALUES, path or _USUAL_FIELD


def look(session: DoctorSession) -> Iterator[ProviderFinding]:
    """Ask for each tier, with one token, and for one that does not exist."""
    field, values, path = wanted(session.known)
    without = at_path(session.plain_answer or {}, path)
    tries = [_try(session, field, value, path) for value in (MADE_UP, *values)]
    yield from judge(field, path, without if isinstance(without, str) else None, tries)


def _try(session: DoctorSession, field: str, value: str, path: str) -> Try:
    assert session.asking is not None
    try:
        whole = session.asking.whole(PROMPT, 1, **{field: value})
    except openai.APIStatusError as error:
        if error.status_code in _REFUSALS:
            return Try(asked=value, refused=error.status_code)
        # No capacity, no quota, a fault: says nothing of whether the tier may be asked for.
        return Try(asked=value, error=of_status(error.status_code))
    except openai.APIError as error:
        return Try(asked=value, error=of_error(error))
    answered = at_path(whole.data, path)
    return Try(asked=value, answered=answered if isinstance(answered, str) else None)


def judge(field: str, path: str, without: str | None, tries: Sequence[Try]) -> Iterator[ProviderFinding]:
    """What the tries say of the field."""
    yield ProviderFinding(
        group=_GROUP,
        looked_at="without asking",
        seen=f"served as {without!r}" if without else "the answer does not say",
        value={"answered": without},
    )
    made_up = next(each for each in tries if each.asked == MADE_UP)
    real = [each for each in tries if each.asked != MADE_UP]
    # Where a made-up name passes, being taken says nothing; being named in the answer still does.
    heeded = made_up.refused is not None
    taken = tuple(
        each.asked
        for each in real
        if each.refused is None and each.error is None and (heeded or (each.answered == each.asked != without))
    )
    answers = tuple(dict.fromkeys(filter(None, [without, *(each.answered for each in real)])))
    facts: list[MeasuredFact] = []
    if taken:
        facts.append(MeasuredFact(path=("tiers", "field"), value=field))
        facts.append(MeasuredFact(path=("tiers", "values"), value=list(taken)))
    if answers:
        facts.append(MeasuredFact(path=("tiers", "answers"), value=list(answers)))
        facts.append(MeasuredFact(path=("tiers", "answer_path"), value=path))
    ignored = not heeded and not taken
    yield ProviderFinding(
        group=_GROUP,
        looked_at=field,
        seen="; ".join(_in_words(each) for each in real),
        state="notable" if ignored else "seen",
        advice="Asking for a tier seems to change nothing: a name that does not exist passes as well."
        if ignored and made_up.refused is None and made_up.error is None
        else "",
        value=[
            {"asked": each.asked, "answered": each.answered, "refused": each.refused, "error": each.error}
            for each in tries
        ],
        facts=tuple(facts),
    )


def _in_words(each: Try) -> str:
    if each.error is not None:
        return f"{each.asked}: {each.error}"
    if each.refused is not None:
        return f"{each.asked}: refused ({each.refused})"
    return f"{each.asked}: served as {each.answered!r}" if each.answered else f"{each.asked}: taken, and not named"


def calls(known: ProviderFacts | None) -> int:
    """How many requests looking takes."""
    return 1 + len(wanted(known)[1])
