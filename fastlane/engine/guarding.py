"""Return an answer that is valid, or ask again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import openai

from .._clock import now_ns
from ..compat.call_options import changed_options
from ..errors import InvalidOutputError
from .collecting import to_json
from .effects import Flow
from .shell import Shell

if TYPE_CHECKING:
    from ..plays.bounded_output.outputs._guard import Guard
    from .observation import Observation


class _AskAgain(NamedTuple):
    """The answer is not handed out: `options` are those of the call that asks again."""

    options: Any


def ask_until_valid(observation: Observation, options: Any, send: Callable[[Any], Flow], guard: Guard) -> Flow:
    """Send a call, and again while its answer is not valid and repairs are left. Returns a Reply.

    Raises InvalidOutputError if none of the answers was valid, and whatever `send` raises.
    """
    while True:
        reply, failed = None, None
        try:
            reply = yield from send(options)
        except Exception as error:  # noqa: BLE001 - looked at, and raised again if it is not about the answer
            failed = error
        try:
            result = _outcome(observation, guard, options, None if reply is None else reply.result, failed)
        finally:
            # Its traceback refers to this frame, and would keep it until a garbage collection.
            del failed
        if not isinstance(result, _AskAgain):
            return reply
        options = result.options


def _outcome(observation: Observation, guard: Guard, options: Any, result: Any, error: Exception | None) -> Any:
    """The result, if it is to be handed out, or `_AskAgain`. Raises the error."""
    try:
        is_truncated = isinstance(error, openai.LengthFinishReasonError)
        if error is not None and isinstance(error, openai.OpenAIError) and not is_truncated:
            raise error
        body = None
        if result is None and guard.judgement.answer:
            # The application gets an error in its place, and yet it was paid for.
            observation.raw_answer(to_json(guard.judgement.answer))
        if not observation.stream:
            try:
                observation.validate_started_ns = now_ns()
                body = guard.next_body(
                    options.json_data, error, is_truncated=is_truncated, is_parsed=_is_parsed(result)
                )
            except InvalidOutputError:
                if result is not None:
                    Shell.looked_at(observation, result)
                raise
            finally:
                observation.validate_ended_ns = now_ns()
        if body is None:
            if error is not None:
                raise error
            return result
        body = {name: value for name, value in body.items() if name not in observation.refused}
        guard.begin()
        observation.asking_again()
        return _AskAgain(changed_options(options, {"json_data": body}))
    finally:
        # Its traceback leads here, and would keep it until a garbage collection.
        del error


def _is_parsed(result: Any) -> bool:
    """Whether openai's code has made an object of the application's classes out of an answer."""
    if getattr(result, "output_parsed", None) is not None:
        return True
    choices: Any = getattr(result, "choices", None)
    return bool(choices) and getattr(getattr(choices[0], "message", None), "parsed", None) is not None
