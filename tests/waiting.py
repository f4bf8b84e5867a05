"""One scenario for both kinds of client: an async client that is used as if it were a sync one."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Self

Run = Callable[[Coroutine[Any, Any, Any]], Any]
HANG_S = 30.0
"""How long anything is waited for before it counts as hanging."""


def comes_true(holds: Callable[[], object]) -> bool:
    """Whether it is so before that counts as hanging."""
    deadline = time.monotonic() + HANG_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def until(holds: Callable[[], object]) -> None:
    """Wait until something is so that surely will be."""
    assert comes_true(holds), "it was waited for in vain"


async def happens(holds: Callable[[], object]) -> None:
    """Wait for the same while the event loop runs."""
    async with asyncio.timeout(HANG_S):
        while not holds():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.002)


class Waiting:
    """Stands for an async object: whatever it returns, iterates over or enters is waited for."""

    def __init__(self, inner: Any, run: Run) -> None:
        self.inner = inner
        self._run = run

    def _wrap(self, value: Any) -> Any:
        kind = type(value)
        names = {base.__name__ for base in kind.__mro__}
        is_async = any(name.startswith("Async") or name == "LegacyAPIResponse" for name in names)
        waits = is_async or any(hasattr(kind, name) for name in ("__aiter__", "__anext__", "__aenter__"))
        return Waiting(value, self._run) if waits or inspect.isroutine(value) else value

    def _wait(self, awaitable: Any) -> Any:
        async def wait() -> Any:
            return await awaitable

        return self._run(wait())

    def __getattr__(self, name: str) -> Any:
        return self._wrap(getattr(self.inner, name))

    def __call__(self, *args: Any, **options: Any) -> Any:
        value = self.inner(*args, **options)
        return self._wrap(self._wait(value) if inspect.isawaitable(value) else value)

    def __iter__(self) -> Iterator[Any]:
        iterator = aiter(self.inner)
        while True:
            try:
                item = self._wait(anext(iterator))
            except StopAsyncIteration:
                return
            yield item

    def __next__(self) -> Any:
        try:
            return self._wait(anext(self.inner))
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Self | Any:
        return self._wrap(self._wait(self.inner.__aenter__()))

    def __exit__(self, *error: object) -> None:
        self._wait(self.inner.__aexit__(*error))


class Form:
    """Makes clients of one kind, sync or async, which a test uses alike."""

    def __init__(self, name: str) -> None:
        self.asynchronous = name == "async"
        self._runner = asyncio.Runner() if self.asynchronous else None

    def make(self, library: Any, name: str = "OpenAI", **options: Any) -> Any:
        """A client of a library, by the name of its sync class."""
        if self._runner is None:
            return getattr(library, name)(**options)
        run = self._runner.run
        # Each step sees the context variables of its caller, as a call of a sync client does.
        made = getattr(library, f"Async{name}")(**options)
        return Waiting(made, lambda step: run(step, context=contextvars.copy_context()))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the event loop of an async form."""
        assert self._runner is not None
        return self._runner.run(work)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of an async form."""
        return None if self._runner is None else self._runner.get_loop()

    def go_on(self) -> None:
        """Let the event loop do what it has to do besides."""
        if self._runner is not None:
            self._runner.run(asyncio.sleep(0.02))

    def close(self) -> None:
        """End the event loop."""
        if self._runner is not None:
            self._runner.close()


SYNC = Form("sync")


def inner_of(value: Any) -> Any:
    """The object itself."""
    return value.inner if isinstance(value, Waiting) else value
