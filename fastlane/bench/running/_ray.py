"""Shards as actors on a Ray cluster: each on a node of its own as far as there are enough."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from fastlane.errors import ConfigurationError, MissingExtraError

from ..recorded import Sample
from ._messages import CellEnded, CellPlan, Event, Ready
from ._shard import Shard, ShardPlan
from ._workers import RunFailedError

if TYPE_CHECKING:
    from ._crew import ShardRunner

_START_S = 120.0
_STOP_S = 15.0
_ANSWER_S = 5.0
# `run` occupies one; orders that come meanwhile need others.
_CONCURRENCY = 4


class _Host:
    """The actor: a shard, and nothing that it does not do by itself."""

    def __init__(self, plan: ShardPlan) -> None:
        self._shard = Shard(plan)

    def start(self) -> tuple[dict[str, Ready], tuple[Sample, ...]]:
        """Start the arms' processes, and send their first requests."""
        samples = self._shard.start()
        return self._shard.clients, samples

    def run(self, plan: CellPlan) -> Iterator[Event]:
        """Yield a cell's events as they come."""
        yield from self._shard.run(plan)

    def order(self, what: str, *arguments: str) -> None:
        """Do one of the things that a shard can be told at any time."""
        getattr(self._shard, what)(*arguments)

    def close(self) -> None:
        """End the arms' processes."""
        self._shard.close()


class RayMember:
    """A shard on a node of a Ray cluster, used as the shard itself is.

    Its stamps are of that node's clock: they are subtracted from each other there and here, and never from another
    shard's.
    """

    def __init__(self, plan: ShardPlan) -> None:
        ray = _ray()
        self._number = plan.shard
        self.clients: dict[str, Ready] = {}
        # The node runs a process for each arm beside the actor; what they need of its cores is the user's to say.
        host = ray.remote(num_cpus=1, max_concurrency=_CONCURRENCY, scheduling_strategy="SPREAD")(_Host)
        self._actor = host.remote(plan)

    def start(self) -> tuple[Sample, ...]:
        """Start the arms' processes there. Raises RunFailedError where a first request fails, or no node is free."""
        self.clients, samples = self._get(self._actor.start.remote(), timeout_s=_START_S)
        return tuple(samples)

    def run(self, plan: CellPlan) -> Iterator[Event]:
        """Run one cell there."""
        for reference in self._actor.run.options(num_returns="streaming").remote(plan):
            event = self._get(reference)
            yield event
            if isinstance(event, CellEnded):
                return

    def end_cell(self, cell: str) -> None:
        """Start no further block of the cell, if it is still running."""
        self._actor.order.remote("end_cell", cell)

    def interrupt(self) -> None:
        """End the cell soon."""
        self._actor.order.remote("interrupt")

    def abandon(self) -> None:
        """Have the arms' processes end now, whatever they do."""
        self._actor.order.remote("abandon")

    def close(self) -> None:
        """End the actor, and with it the arms' processes."""
        ray = _ray()
        try:
            ray.get(self._actor.close.remote(), timeout=_STOP_S)
        # Whatever became of the actor, it is to go.
        except ray.exceptions.RayError:
            pass
        ray.kill(self._actor)

    def _get(self, reference: Any, *, timeout_s: float | None = None) -> Any:
        ray = _ray()
        try:
            return ray.get(reference, timeout=timeout_s)
        except ray.exceptions.GetTimeoutError as error:
            raise RunFailedError(
                f"shard {self._number} did not start within {timeout_s:.0f} s: the Ray cluster has no node with a free "
                "core for it. Ask for fewer processes, or add nodes"
            ) from error
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, RunFailedError):
                raise error.cause from None
            raise RunFailedError(f"shard {self._number} failed on its node: {error.cause!r}") from error
        except ray.exceptions.RayError as error:
            raise RunFailedError(f"shard {self._number} ended early: {str(error).splitlines()[0]}") from error


@contextmanager
def ray_members(address: str, *, shards: int, loopback_only: bool) -> Iterator[Callable[[ShardPlan], ShardRunner]]:
    """Connect to a cluster, and yield what makes a member of a shard's plan.

    `loopback_only` says that the provider is reached from this machine alone, as the embedded one is. Raises
    ConfigurationError where the cluster cannot be reached, or has nodes that could not reach the provider, and
    MissingExtraError.
    """
    ray = _ray()
    try:
        _answers(address)
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", namespace="fastlane-bench")
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigurationError(
            f"no Ray cluster answers at {address!r}: {str(error).splitlines()[0]}. Start one with `ray start --head`, "
            'and give its address as host:port, or "auto" on one of its nodes'
        ) from error
    try:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        # Nodes of one machine may have loopback addresses of their own.
        hosts = {
            "" if ip_address(node["NodeManagerAddress"]).is_loopback else node["NodeManagerAddress"] for node in nodes
        }
        if loopback_only and len(hosts) > 1:
            raise ConfigurationError(
                f"the cluster has nodes on {len(hosts)} machines, and the embedded provider is reached from this one "
                "alone: name a provider that all can reach with a base URL"
            )
        cores = int(sum(node["Resources"].get("CPU", 0) for node in nodes))
        if cores < shards:
            raise ConfigurationError(
                f"{shards} shards need a core each, and the Ray cluster at {address!r} has {cores} in {len(nodes)} "
                "nodes: ask for fewer processes, or add nodes"
            )
        member_of: Callable[[ShardPlan], ShardRunner] = RayMember
        yield member_of
    finally:
        ray.shutdown()


def _answers(address: str) -> None:
    """See that somebody listens there: Ray itself asks for minutes. Raises OSError."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()


def _ray() -> Any:
    # Ray reports its use to its makers unless it is told not to; whoever wants that says so.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtraError("ray", "ray") from error
    return ray
