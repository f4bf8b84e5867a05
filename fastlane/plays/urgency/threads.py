"""Have threads that are started in an `urgency()` block go on with its level, where Python does not see to that.

Context variables do not cross into threads before Python 3.14, and there only by a setting. From the first block on,
`threading.Thread.start` remembers the level of whoever starts a thread, and `ThreadPoolExecutor.submit` that of whoever
submits; what runs is put into a copy of nothing but this one variable. Both stay as they are for anybody else who wraps
them: each wrapper calls what it has found. `follow_threads_no_more` takes them away again where nobody has wrapped
them since.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import wraps
from typing import Any

from fastlane._fork import new_lock

_lock = new_lock()
_stock: dict[str, Any] = {}
"""What was found, by the name of the method; empty while threads are not followed."""
_ours: dict[str, Any] = {}


def follow_threads(variable: ContextVar[Any]) -> None:
    """From now on threads begin with the value that `variable` has where they are started, unless it is None."""
    if _stock:
        return
    with _lock:
        if _stock:
            return
        start, submit = threading.Thread.start, ThreadPoolExecutor.submit
        _ours["start"], _ours["submit"] = _following_start(start, variable), _following_submit(submit, variable)
        threading.Thread.start = _ours["start"]  # type: ignore[method-assign]
        ThreadPoolExecutor.submit = _ours["submit"]  # type: ignore[method-assign]
        _stock.update(start=start, submit=submit)


def follow_threads_no_more() -> bool:
    """Put back what was found; False where somebody has wrapped it since, and it has to stay."""
    with _lock:
        if not _stock:
            return True
        if threading.Thread.start is not _ours["start"] or ThreadPoolExecutor.submit is not _ours["submit"]:
            return False
        threading.Thread.start = _stock["start"]  # type: ignore[method-assign]
        ThreadPoolExecutor.submit = _stock["submit"]  # type: ignore[method-assign]
        _stock.clear()
        _ours.clear()
        return True


def _following_start(stock: Any, variable: ContextVar[Any]) -> Any:
    @wraps(stock)
    def start(self: threading.Thread, *args: Any, **kwargs: Any) -> Any:
        value = variable.get()
        if value is not None and self.ident is None:
            run = self.run  # that of the object: its class may have its own
            own = self.__dict__.get("run")

            def run_with_level() -> None:
                # A thread that refers to itself would wait for a garbage collection.
                if own is None:
                    self.__dict__.pop("run", None)
                else:
                    self.run = own  # type: ignore[method-assign]
                variable.set(value)
                run()

            self.run = run_with_level  # type: ignore[method-assign]
        return stock(self, *args, **kwargs)

    return start


def _following_submit(stock: Any, variable: ContextVar[Any]) -> Any:
    @wraps(stock)
    def submit(self: ThreadPoolExecutor, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        value = variable.get()
        # (Outside of any block as well: the pool's thread may have been started in one.)
        return stock(self, _with_level, variable, value, function, *args, **kwargs)

    return submit


def _with_level(variable: ContextVar[Any], value: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
    token = variable.set(value)
    try:
        return function(*args, **kwargs)
    finally:
        variable.reset(token)
