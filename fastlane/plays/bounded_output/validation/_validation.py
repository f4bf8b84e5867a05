"""Say whether an answer is valid: for a JSON schema, or by the error of whoever decoded it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Any

from fastlane.schemas.checks import check_schema, draft_of, is_panic, parts_of
from fastlane.schemas.references import Schema

from ._json_text import problem_of_syntax, read_json
from ._problems import (
    EMPTY as EMPTY,
    Problem as Problem,
    advice_of,
    names_in,
    shown_path,
    stopped as stopped,
    whole,
    written,
)
from ._schema_keywords import TURNED_ROUND, judging
from ._schema_rules import expected, rule_of

Validator = Callable[[str], Problem | None]
"""Takes the text of an answer, and says what is wrong with it; None where nothing is. Raises nothing."""

# They say less than any other keyword of the same place.
_WEAK = frozenset(("anyOf", "oneOf"))

# An answer may break a rule at each of many thousand items. The first say what kind of mistake it is.
_MOST_ERRORS = 100


def validator(schema: Schema) -> Validator:
    """Return what says whether a text is valid for a JSON schema, of the draft that it names or the newest.

    It is kept by content. Formats are asserted where jsonschema knows them without other packages, except "regex".
    Nothing is ever fetched. An answer counts as valid where its validity cannot be told: by a pattern that no engine
    here can read, or deeper down than Python's stack goes. Raises ConfigurationError for what is no JSON schema, or has
    a reference that leads nowhere in it.
    """
    return _compiled(check_schema(schema))


@lru_cache(maxsize=256)
def _compiled(written_schema: bytes) -> Validator:
    """The validator of a schema that has been checked."""
    import jsonschema  # type: ignore[import-untyped]
    import referencing

    schema = json.loads(written_schema)
    known = names_in(schema)
    stock = draft_of(schema)
    if isinstance(schema, dict):
        # A validator that comes back to the root by a reference would look up the draft's own class by it.
        schema.pop("$schema", None)
    formats = jsonschema.FormatChecker(())
    formats.checkers = {name: check for name, check in stock.FORMAT_CHECKER.checkers.items() if name != "regex"}
    keywords = frozenset(keyword for part in parts_of(schema) for keyword in part)
    judge = judging(stock, strictly=not TURNED_ROUND.isdisjoint(keywords))(
        schema, format_checker=formats, registry=referencing.Registry()
    )

    def validate(text: str) -> Problem | None:
        value, problem = read_json(text)
        if problem is not None:
            return problem
        try:
            errors = list(islice(judge.iter_errors(value), _MOST_ERRORS + 1))
        except BaseException as error:
            # A schema that cannot be applied must not make an answer invalid.
            if isinstance(error, Exception) or is_panic(error):
                return None
            raise
        try:
            return _problem(errors, known) if errors else None
        except Exception:  # noqa: BLE001 - of what an old draft's keywords may hold not all can be put into words
            return whole("not valid for its schema", "The answer is not valid for its schema.", errors[0])

    return validate


def _problem(errors: list[Any], known: frozenset[str]) -> Problem:
    from jsonschema.exceptions import best_match  # type: ignore[import-untyped]

    # jsonschema's own choice among all of them is the last of those that lie equally deep.
    first = min(errors, key=lambda error: (len(error.absolute_path), error.validator in _WEAK, *_order(error)))
    best = best_match([first])
    others = sorted((best_match([error]) for error in errors), key=_order)
    lines = [_line(error) for error in (best, *others)]
    path = shown_path(best.absolute_path, known)
    more, at_least = max(0, len(errors) - _MOST_ERRORS), len(errors) > _MOST_ERRORS
    return Problem(path, _rule(best), advice_of(lines, more=more, at_least=at_least), best)


def _order(error: Any) -> tuple[Any, ...]:
    steps = [(0, step, "") if isinstance(step, int) else (1, 0, str(step)) for step in error.absolute_path]
    return steps, str(error.validator), written(error.validator_value)


def _rule(error: Any) -> str:
    rule = rule_of(error.validator, error.validator_value, error.instance)
    return f"the name of a property: {rule}" if "propertyNames" in error.absolute_schema_path else rule


def _line(error: Any) -> str:
    extras = getattr(error, "extras", [])
    more = expected(error.validator, error.validator_value, error.instance, extras)
    return f"{shown_path(error.absolute_path)}: {_rule(error)}. {more}".rstrip()


def problem_of(error: BaseException, schema: Schema | None = None) -> Problem | None:
    """Return what pydantic or Python's JSON decoder found wrong with an answer; None for any other error.

    Raises nothing. `schema` is the one that the model follows: the path shows the names that stand in it, and "*" for
    any other, because the error alone does not tell a field's name from a key that the model made up.
    """
    if isinstance(error, json.JSONDecodeError):
        return problem_of_syntax(error)
    from pydantic_core import ValidationError

    if not isinstance(error, ValidationError):
        return None
    from ._pydantic_problem import problem_of_pydantic

    try:
        return problem_of_pydantic(error, names_in(schema))
    except Exception:  # noqa: BLE001 - a custom error's own message may fail
        return whole("refused by the model class", "The answer was refused by the class that reads it.", error)
