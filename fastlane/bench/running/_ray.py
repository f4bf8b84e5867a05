"""Shards as actors on a Ray cluster: each on its own node as far as there are enough."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from ipaddress import ip_address
from queue import SimpleQueue
from typing import Any, Final

from fastlane.errors import ConfigurationError, MissingExtraError

from ..._clock import now_ns
from ._requests import BeginCell, RunFailedError, ScheduledRequest
from ._worker import LocalShard, MakeShard, ShardPlan

_STOP_S: Final = 15.0
_ANSWER_S: Final = 5.0


class _Host(LocalShard):
    """The actor: a shard on its node.

    Stamps are of the node's clock. Intended times are moved by the difference of the clocks when the cell began.
    """

    def __init__(self, plan: ShardPlan) -> None:
        self._received: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._between_ns = 0
        super().__init__(plan, lambda arm, message: self._received.put((arm, message)))

    def order_at(self, arm: str, order: Any, sent_ns: int) -> None:
        if isinstance(order, BeginCell):
            self._between_ns = now_ns() - sent_ns
        elif isinstance(order, ScheduledRequest) and order.place.intended_ns is not None:
            moved_ns = order.place.intended_ns + self._between_ns
            order = replace(order, place=replace(order.place, intended_ns=moved_ns))
        self.order(arm, order)

    def events(self) -> Iterator[tuple[str, Any]]:
        while True:
            yield self._received.get()


class RayShard:
    def __init__(self, plan: ShardPlan, on_message: Callable[[str, Any], None]) -> None:
        self._number = plan.shard
        self._on_message = on_message
        # The node runs a process for each arm beside the actor; what they need of its cores is the user's to say.
        # Orders have their own thread, so that they are followed one after the other.
        options = {"num_cpus": 1, "scheduling_strategy": "SPREAD", "concurrency_groups": {"orders": 1, "events": 1}}
        self._actor = _ray().remote(**options)(_Host).remote(plan)
        threading.Thread(target=self._listen, name=f"fastlane-bench-shard-{plan.shard}", daemon=True).start()

    def order(self, arm: str, order: Any) -> None:
        self._actor.order_at.options(concurrency_group="orders").remote(arm, order, now_ns())

    def abandon(self) -> None:
        self._actor.abandon.remote()

    def close(self) -> None:
        ray = _ray()
        with suppress(ray.exceptions.RayError):
            ray.get(self._actor.close.remote(), timeout=_STOP_S)
        ray.kill(self._actor)

    def _listen(self) -> None:
        ray = _ray()
        try:
            for reference in self._actor.events.options(concurrency_group="events", num_returns="streaming").remote():
                self._on_message(*ray.get(reference))
        except ray.exceptions.RayError as error:
            self._on_message("", RunFailedError(f"shard {self._number} ended early: {str(error).splitlines()[0]}"))


@contextmanager
def ray_shards(address: str, *, shards: int, loopback_only: bool) -> Iterator[MakeShard]:
    """Connect to a cluster, and yield what makes a shard there. Raises ConfigurationError and MissingExtraError.

    `loopback_only`: the provider is reached from this machine alone, as the embedded one is.
    """
    ray = _ray()
    try:
        # Ray itself tries for minutes.
        host, colon, port = address.removeprefix("ray://").rpartition(":")
        if colon and port.isdigit():
            socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", namespace="fastlane-bench")
    except (OSError, ValueError, RuntimeError) as error:
        said = f"no Ray cluster answers at {address!r}: {str(error).splitlines()[0]}"
        raise ConfigurationError(f"{said}. Start one with `ray start --head`, and give its host:port") from error
    try:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        # Nodes of one machine may have several loopback addresses.
        addresses = {node["NodeManagerAddress"] for node in nodes}
        machines = len({"" if ip_address(each).is_loopback else each for each in addresses})
        if loopback_only and machines > 1:
            raise ConfigurationError(f"the cluster is on {machines} machines, so it needs a provider with a --base-url")
        cores = int(sum(node["Resources"].get("CPU", 0) for node in nodes))
        if cores < shards:
            found = f"the Ray cluster at {address!r} has {cores} in {len(nodes)} nodes"
            raise ConfigurationError(f"{shards} shards need a core each, and {found}: ask for fewer --processes")
        yield RayShard
    finally:
        ray.shutdown()


def _ray() -> Any:
    # Ray reports its use to its makers unless that is turned off.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtraError("ray", "ray") from error
    return ray
