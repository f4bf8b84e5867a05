"""What becomes of an answer that has begun: handed out, or left for another way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from fastlane.protocol.first_content import Verdict, is_empty_answer

if TYPE_CHECKING:
    from ..observation import Observation
    from ._leg import Leg


def received(response: Any) -> bool:
    """Whether a response is an answer; an error is for openai's own code to raise."""
    return bool(200 <= response.status_code < 300)


def judged(leg: Leg, verdict: Verdict, response: Any) -> None:
    """An answer's first content has come, or none will. Raises Left where it is not to be handed out."""
    if verdict in ("empty", "error") or (verdict == "unknown" and _is_a_page(response)):
        left = leg.empty("empty" if verdict == "empty" else "server")
        if left is not None:
            try:
                raise left
            finally:
                del left  # whose traceback leads here
    leg.claim()


def _is_a_page(response: Any) -> bool:
    """Whether it is what stands before the provider that speaks, to people."""
    return bool(response.headers.get("content-type", "").lower().startswith("text/html"))


def whole_answer(leg: Leg, observation: Observation, response: Any) -> Any:
    """A whole answer has come, read. Raises Left where it is not to be handed out."""
    verdict: Verdict = "unknown"
    if "json" in response.headers.get("content-type", ""):
        try:
            body = orjson.loads(response.content)
        except orjson.JSONDecodeError:
            body, verdict = None, "error"  # where it is handed out, openai's code says what is wrong with that
        if isinstance(body, dict) and is_empty_answer(body, observation.endpoint):
            verdict = "empty"
    judged(leg, verdict, response)
    return response
