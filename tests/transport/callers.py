"""The synchronous and the asynchronous client behind one face, so that a promise of both is written down once."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import fastlane
from fastlane import CallRecord
from tests.waiting import Form, inner_of


def request(**emulator: Any) -> dict[str, Any]:
    """A request that asks the embedded provider for something: `output_tokens=3` is `x-emulator-output-tokens: 3`."""
    headers = {f"x-emulator-{name.replace('_', '-')}": str(value) for name, value in emulator.items()}
    return {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "extra_headers": headers}


def text_of(chunks: Sequence[Any]) -> str:
    """What the chunks of a stream say."""
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def comes_true_for(caller: Any, predicate: Callable[[], bool]) -> bool:
    """Whether it is so before it counts as hanging; the caller's event loop runs meanwhile."""
    for _ in range(1_500):
        if predicate():
            return True
        caller.sleep(0.02)
    return False


class Caller:
    """Calls with a client of one kind, which waits for each of them; several calls at once in threads or tasks."""

    def __init__(self, kind: str, **options: Any) -> None:
        self.form = Form(kind)
        self.waiting = self.form.make(fastlane, **options)
        """The client, to be used as a sync one."""
        self.client: Any = inner_of(self.waiting)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        return tuple(self.client.calls)

    @property
    def last_call(self) -> CallRecord:
        return self.calls[-1]

    def close(self) -> None:
        self.waiting.close()
        self.form.close()

    def ask(self, **emulator: Any) -> Any:
        return self.waiting.chat.completions.create(**request(**emulator))

    def start(self, events: int = 0, **emulator: Any) -> Any:
        """Open a stream and read some of its events."""
        stream = self.waiting.chat.completions.create(**request(**emulator), stream=True)
        for _ in range(events):
            next(stream)
        return stream

    def read(self, **emulator: Any) -> list[Any]:
        return list(self.start(**emulator))

    def sleep(self, seconds: float) -> None:
        """Wait; an event loop runs meanwhile."""
        if self.form.asynchronous:
            self.form.run(asyncio.sleep(seconds))
        else:
            time.sleep(seconds)


CALLERS: dict[str, Any] = {kind: functools.partial(Caller, kind) for kind in ("sync", "async")}
