"""Take back a field that a play added and the provider refused, or a tier that has no capacity."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import openai
from openai._models import FinalRequestOptions

from ._call_options import changed_options

if TYPE_CHECKING:
    from ._observation import Observation


class TierFull(BaseException):
    """The tier that was asked for has no capacity, or is none for this key: it ends the attempt.

    It passes through openai's own loop, which would wait and ask for the same again, or hand the error out.
    """

    def __init__(self, retries_taken: int) -> None:
        super().__init__()
        self.retries_taken = retries_taken
        """Of openai's loop, before this attempt."""


def without_refused(
    observation: Observation, options: FinalRequestOptions, error: openai.APIStatusError
) -> FinalRequestOptions | None:
    """The options of a call without what plays added to it, if the provider refused that; None for any other error.

    The answer to a request with a field that it does not know is an error that names the field, and no work was
    done for it. Of one that names nothing at all it may be anything: the call goes out as its caller wrote it.
    """
    optional = observation.optional
    if not optional or error.status_code not in (400, 422) or not isinstance(options.json_data, dict):
        return None
    said = f"{error.message} {error.body}"
    named = tuple([name for name in optional if _names(said, name, options.json_data.get(name))])
    if not named and _says_nothing(error, said, options.json_data):
        ours = () if observation.guard is None else observation.guard.plan.optional
        streamed = () if observation.collector is None else ("stream", "stream_options")
        named = tuple([name for name in optional if name in (*ours, *streamed)])
    if not named:
        return None
    if "stream" in named:
        named = tuple([name for name in optional if name in {*named, "stream_options"}])
    observation.optional = tuple([name for name in optional if name not in named])
    observation.take_back(named)
    kept = {name: value for name, value in options.json_data.items() if name not in named}
    return changed_options(options, {"json_data": kept})


def _says_nothing(error: openai.APIStatusError, said: str, body: Mapping[str, Any]) -> bool:
    """Whether an error gives no reason: neither a code, nor a parameter, nor any word of the request."""
    return error.param is None and not isinstance(error.code, str) and not any(_names(said, name) for name in body)


def _names(said: str, name: str, value: Any = None) -> bool:
    """Whether an error speaks of a field, or of the number in it: some say how many tokens are too many, no more."""
    words = [name, str(value)] if type(value) is int and value > 99 else [name]
    return any(re.search(rf"(?<![A-Za-z0-9_]){re.escape(word)}(?![A-Za-z0-9_])", said) for word in words)
