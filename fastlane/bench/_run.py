"""One run: the arms' clients, a thread for each lane, and what they recorded."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from .._clock import now_ns
from .._exceptions import ConfigurationError
from ._arms import Arm
from ._check import Check, check
from ._provider import Provider, Running
from ._recorder import Place, Sample
from ._schedule import Block, lanes, salt
from ._workers import RunFailedError, Worker, workers
from .workloads import Turn, Workload, salted, salted_tools

if TYPE_CHECKING:
    from ..emulator import RequestLog

_GRACE_NS = 1_000_000_000
"""How long requests may take that are under way at Ctrl-C."""
_COLD = -1
"""The block number of an arm's first request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to run. Raises ConfigurationError for a setting that cannot work."""

    arms: tuple[Arm, ...]
    workload: Workload
    provider: Provider
    turns: int | None = None
    """Most turns of one conversation; None for all."""
    lanes: int = 8
    """Simulated users at the same time."""
    think_s: float = 0.1
    """Pause of a lane before each block but its first, in seconds: a user or a tool thinks."""
    max_output_tokens: int = 96
    budget_s: float = 45.0
    """No block starts later than this many seconds after the first one."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not math.isfinite(self.budget_s) or self.budget_s <= 0:
            raise ConfigurationError(f"budget_s must be a number of seconds above 0, got {self.budget_s:g}")
        for name, least in (("lanes", 1), ("think_s", 0), ("max_output_tokens", 2)):
            value = getattr(self, name)
            if not math.isfinite(value) or value < least:
                raise ConfigurationError(f"{name} must be at least {least}, got {value}")
        if self.turns is not None and self.turns < 1:
            raise ConfigurationError(f"turns must be at least 1, got {self.turns}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run recorded."""

    settings: Settings
    samples: tuple[Sample, ...]
    log: tuple[RequestLog, ...] | None
    """The provider's own account; None for a real provider."""
    check: Check | None
    blocks_planned: int
    duration_s: float
    """From the first block's start to the last one's end, in seconds."""
    cpu_share: float
    """CPU time of the busiest arm's process per second of the run: 1.0 is one core."""
    interrupted: bool = False
    """Whether Ctrl-C ended it; what was finished by then is in it."""

    @property
    def blocks_run(self) -> int:
        """Blocks that were started."""
        return len({sample.key for sample in self.samples if not sample.cold})


def run(settings: Settings, *, on_block: Callable[[int, int], None] | None = None) -> Run:
    """Replay the workload with every arm, and return what was recorded.

    `on_block` is called after each block, from the lanes' threads, with the blocks done and planned. Raises
    RunFailedError when an arm's very first request fails: nothing that follows would be worth its time or its price.

    Ctrl-C ends the run soon: requests that are under way get a moment to finish, and what was finished is returned. A
    second Ctrl-C, or one before the first block, raises KeyboardInterrupt.
    """
    names = [arm.name for arm in settings.arms]
    planned = lanes(settings.workload, names, lane_count=settings.lanes, turns=settings.turns, seed=settings.seed)
    with (
        settings.provider.running() as provider,
        workers(settings.arms, base_url=provider.base_url, api_key=provider.api_key, lanes=settings.lanes) as clients,
    ):
        crew = _Crew(settings, provider, clients, sum(map(len, planned)), on_block)
        cold = crew.warm_up(names)
        began, cpu_began = now_ns(), crew.cpu_ns()
        samples = (*cold, *crew.work(planned, typical_s=min(_duration_s(sample) for sample in cold) * len(names)))
        duration_s = (now_ns() - began) / 1e9
        cpu_s = max(after - before for before, after in zip(cpu_began, crew.cpu_ns(), strict=True)) / 1e9
        log = crew.log()
        if crew.interrupted:
            for client in clients.values():
                client.abandon()
    return Run(
        settings=settings,
        samples=samples,
        log=log,
        check=None if log is None else check(samples, log, one_way_s=provider.one_way_s),
        blocks_planned=crew.planned,
        duration_s=duration_s,
        cpu_share=cpu_s / duration_s,
        interrupted=crew.interrupted,
    )


def _duration_s(sample: Sample) -> float:
    return (sample.ended_ns - sample.issued_ns) / 1e9


class _Crew:
    """The lanes' threads and what they share: read-only but for the count of finished blocks."""

    def __init__(
        self,
        settings: Settings,
        provider: Running,
        clients: Mapping[str, Worker],
        planned: int,
        on_block: Callable[[int, int], None] | None,
    ) -> None:
        self._settings = settings
        self._provider = provider
        self._clients = clients
        self._on_block = on_block
        self._done = 0
        self._counting = threading.Lock()
        self._stop = threading.Event()
        self._under_way: set[str] = set()
        self._abandoned: frozenset[str] = frozenset()
        self.planned = planned
        self.interrupted = False

    def cpu_ns(self) -> list[int]:
        """Return the CPU nanoseconds that each arm's process has used so far."""
        return [client.cpu_ns() for client in self._clients.values()]

    def log(self) -> tuple[RequestLog, ...] | None:
        """Return the provider's account of all requests but those that Ctrl-C cut off; None where it gives none."""
        if self._provider.read_log is None:
            return None
        return tuple(entry for entry in self._provider.read_log() if entry.tag not in self._abandoned)

    def warm_up(self, names: Sequence[str]) -> tuple[Sample, ...]:
        """Send each arm's first request of all. Raises RunFailedError if one fails."""
        turn = next(turn for conversation in self._settings.workload.conversations for turn in conversation.turns)
        samples: list[Sample] = []
        for name in names:
            place = Place(
                arm=name, tag=f"{name}/cold", lane=0, block=_COLD, conversation=turn.conversation, turn=0, cold=True
            )
            sample = self._send(place, turn, conversation="cold", draw="cold")
            if sample.error is not None:
                whom = "" if self._provider.embedded else f" to {self._provider.host}"
                raise RunFailedError(
                    f"the first request of arm {name!r}{whom} failed: {sample.error}: {sample.error_message}"
                )
            samples.append(sample)
        return tuple(samples)

    def work(self, planned: Sequence[Sequence[Block]], *, typical_s: float) -> tuple[Sample, ...]:
        """Run every lane in a thread, their starts spread over one block's usual time, and return all samples."""
        results: list[list[Sample]] = [[] for _ in planned]
        random = Random(f"{self._settings.seed}/starts")
        until = now_ns() + int(self._settings.budget_s * 1e9)
        failures: list[BaseException] = []
        ended = [threading.Event() for _ in planned]
        threads = []
        for lane, blocks in enumerate(planned):
            # Lanes in step would queue behind each other, and the queue would be taken for the provider's latency.
            delay_s = typical_s * (lane + random.random() / 2) / len(planned) if lane else 0.0
            threads.append(
                threading.Thread(
                    target=self._guarded,
                    args=(failures, ended[lane], blocks, delay_s, until, results[lane]),
                    daemon=True,
                )
            )
        try:
            for thread in threads:
                thread.start()
            # Not join(): Ctrl-C in it makes Python 3.11 and 3.12 take a thread that runs for one that has ended.
            for each in ended:
                # In steps: on Windows an unlimited wait would not let Ctrl-C through.
                while not each.wait(0.5):
                    pass
        except KeyboardInterrupt:
            self.interrupted = True
            self._end_soon(ended)
        finally:
            self._stop.set()
        if failures:
            raise failures[0]
        # First the names, then the samples: a request that is finished in between must be missing in neither.
        under_way = frozenset(self._under_way)
        samples = tuple(sample for result in results for sample in tuple(result))
        self._abandoned = under_way - {sample.tag for sample in samples}
        return samples

    def _end_soon(self, ended: Sequence[threading.Event]) -> None:
        # The lanes end with the request that they are in, unless it takes longer than somebody who waits wants to.
        self._stop.set()
        until = now_ns() + _GRACE_NS
        for each in ended:
            each.wait(max(0, until - now_ns()) / 1e9)

    def _guarded(self, failures: list[BaseException], ended: threading.Event, *lane: Any) -> None:
        # A lane that died unseen would be a run with fewer requests than it says.
        try:
            self._lane(*lane)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
            self._stop.set()
        finally:
            ended.set()

    def _lane(self, blocks: Sequence[Block], delay_s: float, until: int, samples: list[Sample]) -> None:
        for block in blocks:
            if self._stop.wait(self._settings.think_s if block.number else delay_s) or now_ns() > until:
                return
            for arm in block.order:
                if self._stop.is_set():
                    return
                place = Place(
                    arm=arm,
                    tag=block.tag(arm),
                    lane=block.lane,
                    block=block.number,
                    conversation=block.turn.conversation,
                    turn=block.turn.number,
                )
                conversation, draw = str(block.conversation_index), f"{block.lane}/{block.number}"
                self._under_way.add(place.tag)
                samples.append(self._send(place, block.turn, conversation=conversation, draw=draw))
                self._under_way.discard(place.tag)
            with self._counting:
                self._done += 1
                if self._on_block:
                    self._on_block(self._done, self.planned)

    def _send(self, place: Place, turn: Turn, *, conversation: str, draw: str) -> Sample:
        settings = self._settings
        line = salt(settings.seed, place.arm, conversation)
        tokens = min(turn.answer_tokens, settings.max_output_tokens)
        body: dict[str, Any] = {
            "model": self._provider.model,
            "messages": salted(turn.messages, line),
            "max_completion_tokens": tokens,
            "stream_options": {"include_usage": True},
        }
        if turn.tools:
            body["tools"] = salted_tools(turn.tools, line)
        headers: dict[str, str] = {}
        if self._provider.embedded:
            # Same draw, same luck: the arms of one block meet a provider in the same mood.
            luck = int.from_bytes(hashlib.blake2b(f"{settings.seed}/{draw}".encode(), digest_size=6).digest(), "big")
            headers = {
                "x-emulator-tag": place.tag,
                "x-emulator-output-tokens": str(tokens),
                "x-emulator-draw": str(luck),
            }
        return self._clients[place.arm].send(place.lane, place, body, headers)
