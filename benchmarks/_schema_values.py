"""Values that hypothesis-jsonschema makes of a JSON schema."""

from __future__ import annotations

import warnings
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import hypothesis_jsonschema
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import HypothesisException
from hypothesis.internal.conjecture import utils
from hypothesis_jsonschema import _from_schema

_SETTINGS = settings(deadline=None, database=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))


class _Many(utils.many):
    """As hypothesis had it when hypothesis-jsonschema 0.23.1 was written: asked for one element after the other."""

    def more(self) -> bool:
        if self._depth is None:
            self.__enter__()
            self._each = iter(self)
        more = next(self._each, False) is None
        if not more:
            self.__exit__(None)
        return more


if not hasattr(utils.many, "more"):
    # Its only use of that module. Without, no object can be made whose number of properties has limits.
    vars(_from_schema)["cu"] = SimpleNamespace(many=_Many)


def made(schema: Any, count: int, number: int) -> list[Any]:
    """Return so many values of a schema, or fewer, the same for the same number; none where it can make none."""
    values: list[Any] = []
    with warnings.catch_warnings():
        # It warns of patterns that it cannot read.
        warnings.simplefilter("ignore")
        try:

            @seed(number)
            @settings(_SETTINGS, max_examples=count)
            @given(hypothesis_jsonschema.from_schema(deepcopy(schema)))  # It changes what it is given.
            def take(value: Any) -> None:
                values.append(value)

            take()
        except (HypothesisException, AssertionError, LookupError, ValueError, TypeError, RecursionError):
            # No value is valid, or hypothesis-jsonschema cannot say which are: it asserts that there is no such schema.
            pass
        except Exception as error:
            # References that lead nowhere and schemas that are none raise types of other libraries.
            if not type(error).__module__.startswith(("hypothesis_jsonschema", "jsonschema", "referencing")):
                raise
    return values
