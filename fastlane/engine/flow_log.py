"""FASTLANE_LOG: `info` logs what is on in each new client, and what is off and why; `debug` also logs each call.

Each line shows an effect, the function that yielded it, and its result, indented by depth. It contains no text of a
prompt or an answer, no header, and no query of a URL.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from .._clock import now_ns
from ..errors import ConfigurationError
from .effects import Acquire, Flow, Send, Sleep

VARIABLE = "FASTLANE_LOG"
_LEVELS = {"": None, "info": logging.INFO, "debug": logging.DEBUG}

log = logging.getLogger("fastlane.flow")
# A root logger at DEBUG must not turn this on.
log.setLevel(logging.INFO)


def configure(environment: Mapping[str, str] = os.environ) -> bool:
    """Configure the loggers by FASTLANE_LOG. Returns whether it is set; raises ConfigurationError for another value."""
    text = environment.get(VARIABLE, "").strip()
    if text.lower() not in _LEVELS:
        raise ConfigurationError(f"{VARIABLE}: expected info or debug, got {text!r:.60}")
    level = _LEVELS[text.lower()]
    if level is None:
        return False
    package = logging.getLogger("fastlane")
    if not package.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
        package.addHandler(handler)
    if not package.isEnabledFor(level):
        package.setLevel(level)
    log.setLevel(level)
    return True


def logged(flow: Flow) -> Flow:
    """Run a flow, and log each effect with its result."""
    resume, value = flow.send, None
    try:
        while True:
            try:
                effect = resume(value)
            except StopIteration as end:
                return end.value
            source, depth = _source_of(flow)
            indent = "  " * depth
            log.debug("%s%s, for %s", indent, _effect(effect), source)
            started_ns = now_ns()
            try:
                value, resume = (yield effect), flow.send
            except BaseException as error:  # noqa: BLE001 - the flow raises it again
                value, resume = error, flow.throw
            result = type(value).__name__ if isinstance(value, BaseException) else _result(value)
            log.debug("%s  -> %s in %.1f ms", indent, result, (now_ns() - started_ns) / 1e6)
    finally:
        flow.close()
        del value, resume  # the traceback of an error refers to this frame


def _source_of(flow: Any) -> tuple[str, int]:
    """Return the module and the function that yielded the effect, and their depth in the flow."""
    depth = 0
    while getattr(flow.gi_yieldfrom, "gi_frame", None) is not None:
        flow, depth = flow.gi_yieldfrom, depth + 1
    module = flow.gi_frame.f_globals.get("__name__", "").removeprefix("fastlane.")
    return f"{module}.{flow.gi_code.co_name}", depth


def _effect(effect: Any) -> str:
    match effect:
        case Send(request=request, stream=stream):
            url, length = request.url, request.headers.get("content-length", "no")
            return f"Send {request.method} {url.host}{url.path} ({length} bytes{', streamed' if stream else ''})"
        case Sleep(seconds=seconds):
            return f"Sleep {seconds:.3f} s"
        case Acquire(ticket=ticket, timeout_s=timeout_s):
            return f"Acquire {type(ticket).__name__}" + ("" if timeout_s is None else f" within {timeout_s:.3f} s")
        case _:
            return type(effect).__name__


def _result(value: Any) -> str:
    status = getattr(value, "status_code", None)
    if isinstance(status, int):
        return f"{status}"
    return f"{value}" if value is None or isinstance(value, bool | int | float) else type(value).__name__
