"""The requests of a run, and what its processes send to each other: all of it can be pickled."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastlane.errors import FastlaneError

from ..load import Due
from ..recorded import Cell, SampleKey
from ..workloads import Turn, Workload, salted, salted_tools


class RunFailedError(FastlaneError):
    """A run that gave no usable figures: the message says what happened. It is the last message of a worker."""


@dataclass(frozen=True, slots=True)
class ScheduledRequest:
    """One request for a worker to send: at its intended time, or at once if it has none."""

    place: SampleKey
    body: Mapping[str, Any]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Done:
    """A worker's request has ended; its Sample comes once the worker has time for it."""

    tag: str


@dataclass(frozen=True, slots=True)
class BeginCell:
    """Order a worker to collect garbage and then probe itself. The worker sends it back when it has begun."""


@dataclass(frozen=True, slots=True)
class EndCell:
    """Order a worker to send the samples that it has kept, and its Vitals since BeginCell."""

    cell: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The first message of a worker: its client was made; see ArmInfo."""

    client: str
    plays: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMaker:
    """Makes the requests of a run."""

    model: str
    limit_field: str = "max_completion_tokens"
    embedded: bool = False
    seed: int = 0
    max_output_tokens: int | None = None

    def of_block(self, cell: Cell, due: Due, *, shard: int) -> ScheduledRequest:
        block, turn = due.block, due.block.turn
        replay = f"{cell.name}/{block.replay}"
        if cell.caching_forbidden:
            replay += f"/{turn.number}"
        return self._request(
            turn,
            replay=replay,
            draw=f"{cell.name}/{block.lane}/{block.number}",
            arm=due.arm,
            tag=f"{cell.order}/{due.arm}/{block.lane}/{block.number}",
            cell=cell.name,
            shard=shard,
            lane=block.lane,
            block=block.number,
            position=due.position,
            turn=turn.number,
            intended_ns=due.intended_ns,
        )

    def unmeasured(
        self, workload: Workload, arm: str, *, shard: int, cell: Cell | None = None, number: int = 0
    ) -> ScheduledRequest:
        """Return the first request of an arm's process, or with a cell, a request that warms the cell up."""
        if cell is None:
            name, tag = "cold", f"{arm}/cold" + (f"/{shard}" if shard else "")
        else:
            name = f"warm-up/{shard}/{number}"
            tag = f"{cell.order}/{arm}/{name}"
        replay = f"{cell.name if cell else ''}/{name}"
        return self._request(
            workload.conversations[0].turns[0],
            replay=replay,
            draw=replay,
            arm=arm,
            tag=tag,
            cell=cell.name if cell else "",
            shard=shard,
            block=-1,
            turn=0,
            part="warm-up" if cell else "cold",
        )

    def _request(self, asked: Turn, *, replay: str, draw: str, arm: str, tag: str, **place: Any) -> ScheduledRequest:
        tokens = asked.answer_tokens
        if self.max_output_tokens is not None:
            tokens = min(tokens, self.max_output_tokens)
        line = salt(self.seed, arm, replay)
        body: dict[str, Any] = {
            "model": self.model,
            "messages": salted(asked.messages, line),
            self.limit_field: tokens,
            "stream_options": {"include_usage": True},
            **asked.fields,
        }
        if asked.tools:
            body["tools"] = salted_tools(asked.tools, line)
        least = asked.least_answer_tokens
        key = SampleKey(
            arm=arm,
            tag=tag,
            conversation=asked.conversation,
            asked_output_tokens=tokens,
            least_output_tokens=None if least is None else min(least, tokens),
            meant_input_tokens=asked.input_tokens,
            **place,
        )
        headers: Mapping[str, str] = {}
        if self.embedded:
            # The same draw for all arms of a block: they meet the provider in the same state.
            luck = int.from_bytes(hashlib.blake2b(f"{self.seed}/{draw}".encode(), digest_size=6).digest())
            headers = {
                "x-emulator-tag": tag,
                "x-emulator-output-tokens": str(tokens),
                "x-emulator-draw": str(luck),
            }
        return ScheduledRequest(key, body, headers)


def salt(seed: int, arm: str, replay: str) -> str:
    """Return the first line of an arm's prompts in one conversation: as long for every arm, equal for every turn.

    Without it, the arm that sends a request first would fill the provider's prefix cache for the others.
    """
    digest = hashlib.blake2b(f"{seed}/{arm}/{replay}".encode(), digest_size=8).hexdigest()
    return f"Session {digest}."
