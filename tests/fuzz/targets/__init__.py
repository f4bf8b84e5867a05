"""The readers that are fuzzed, each with what has to be true of it."""

from __future__ import annotations

from . import (
    _assembly,
    _batch,
    _decode,
    _h1,
    _h2,
    _json,
    _rate_limits,
    _sse,
    _stream,
)
from ._target import Target as Target, WrongError as WrongError

TARGETS: dict[str, Target] = {
    module.TARGET.name: module.TARGET
    for module in (
        _sse, _stream, _decode, _json, _assembly, _h2, _h1, _rate_limits, _batch,
    )
}  # fmt: skip
"""By name."""
