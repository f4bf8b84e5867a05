"""Hand out an answer that is as it was to be, or ask again: the only module that repeats a call of its own accord."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import openai

from .._clock import now_ns
from ..compat.call_options import changed_options
from ..errors import InvalidOutputError
from .collecting import to_json
from .shell import Shell

if TYPE_CHECKING:
    from ..plays.bounded_output.outputs._guard import Guard
    from .observation import Observation


class _AskAgain(NamedTuple):
    """The answer is not handed out: `options` are those of the call that asks again."""

    options: Any


def _tries(guard: Guard) -> dict[str, Any]:
    """What tenacity is to keep to. How many answers there may be, the guard knows as well, and says so by an error.

    It is shown results alone: with an error it would keep the frames that the error came through, and with them the
    prompt, until a garbage collection.
    """
    from tenacity import retry_if_result, stop_after_attempt

    return {
        "retry": retry_if_result(lambda result: isinstance(result, _AskAgain)),
        "stop": stop_after_attempt(guard.plan.repairs + 1),
    }


def guarded(observation: Observation, options: Any, run: Callable[[Any], Any], guard: Guard) -> Any:
    """The result of a call, asked for again while its answer is not valid and repairs are left.

    Raises InvalidOutputError if none of the answers was valid, and whatever a call raises.
    """
    if not guard.plan.repairs:
        return _outcome(observation, guard, options, *_answer(run, options))
    from tenacity import Retrying

    result: Any = None
    for attempt in Retrying(**_tries(guard)):
        result = _outcome(observation, guard, options, *_answer(run, options))
        if isinstance(result, _AskAgain):
            options = result.options
        attempt.retry_state.set_result(result)
    return result


async def async_guarded(
    observation: Observation, options: Any, run: Callable[[Any], Awaitable[Any]], guard: Guard
) -> Any:
    """See `guarded`."""
    if not guard.plan.repairs:
        return _outcome(observation, guard, options, *await _async_answer(run, options))
    from tenacity import Retrying

    # Between two of them nobody waits, so that the synchronous form serves any event loop.
    result: Any = None
    for attempt in Retrying(**_tries(guard)):
        result = _outcome(observation, guard, options, *await _async_answer(run, options))
        if isinstance(result, _AskAgain):
            options = result.options
        attempt.retry_state.set_result(result)
    return result


def _answer(run: Callable[[Any], Any], options: Any) -> tuple[Any, Exception | None]:
    try:
        return run(options), None
    except Exception as error:  # noqa: BLE001 - looked at, and raised again if it is not about the answer
        return None, error


async def _async_answer(run: Callable[[Any], Awaitable[Any]], options: Any) -> tuple[Any, Exception | None]:
    try:
        return await run(options), None
    except Exception as error:  # noqa: BLE001 - looked at, and raised again if it is not about the answer
        return None, error


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
