"""What becomes of an answer that has begun: handed out, or left for another way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from ._first_content import Verdict, is_empty_answer

if TYPE_CHECKING:
    from .._observation import Observation
    from ._leg import Leg


def received(response: Any) -> bool:
    """Whether a response is an answer; an error is for openai's own code to raise."""
    return bool(200 <= response.status_code < 300)


def judged(leg: Leg, verdict: Verdict, response: Any) -> None:
    """An answer's first content has come, or none will. Raises Left where it is not to be handed out."""
    if verdict in ("empty", "error"):
        left = leg.empty("empty" if verdict == "empty" else "server")
        if left is not None:
            left.request = response.request
            raise left
    leg.claim()


def whole_answer(leg: Leg, observation: Observation, response: Any) -> Any:
    """A whole answer has come, read. Raises Left where it is not to be handed out."""
    verdict: Verdict = "unknown"
    if "json" in response.headers.get("content-type", ""):
        try:
            body = orjson.loads(response.content)
        except orjson.JSONDecodeError:
            body = None  # openai's code says what is wrong with that
        if isinstance(body, dict) and is_empty_answer(body, observation.endpoint):
            verdict = "empty"
    judged(leg, verdict, response)
    return response
