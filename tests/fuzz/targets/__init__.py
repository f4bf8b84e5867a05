"""The readers that are fuzzed: `check(data)` raises if an input shows a defect, `seeds()` are inputs to change."""

from __future__ import annotations

from types import ModuleType

from . import _assembly, _batch, _decode, _h1, _h2, _json, _rate_limits, _sse, _stream

TARGETS: dict[str, ModuleType] = {
    module.__name__.rpartition("._")[2]: module
    for module in (_sse, _stream, _decode, _json, _assembly, _h2, _h1, _rate_limits, _batch)
}
