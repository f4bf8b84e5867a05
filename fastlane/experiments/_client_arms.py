"""The arms of one client: which of them a call goes to, and the client with that arm's plays."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..compat.clients import given_headers, given_query, http_client_of
from ..plays import Play
from ..protocol.endpoints import GENERATING
from ._assigned import Assigned
from ._assignment import draw, draw_anew
from ._units import unit_id

if TYPE_CHECKING:
    from ..engine.pipeline import Pipeline
    from ._experiment import Experiment

log = logging.getLogger("fastlane")


class Pipelines:
    """What each arm does with a call: shared by all clients that share their log of calls."""

    def __init__(self, own: Pipeline) -> None:
        self._own = own
        self._of: dict[str, Pipeline] = {}
        self._lock = threading.Lock()

    def of(self, arm: str, plays: tuple[Play, ...]) -> Pipeline:
        """That of an arm: the client's own where it has the same plays."""
        found = self._of.get(arm)
        if found is None:
            from ..engine.pipeline import Pipeline

            with self._lock:
                found = self._of.get(arm)
                if found is None:
                    own = self._own
                    is_own = len(plays) == len(own.plays) and all(map(_is, plays, own.plays))
                    found = own if is_own else Pipeline(plays, own.hooks, strict=own.strict)
                    if not is_own:
                        found.log_beside(own)
                    self._of[arm] = found
        return found


class ClientArms:
    """Chooses for the calls of one client."""

    def __init__(self, experiment: Experiment, pipelines: Pipelines, copy: Callable[..., Any]) -> None:
        self.experiment = experiment
        self.copy = copy
        """Copies a client: `copy()` of fastlane's own class, whatever an application's subclass makes of it."""
        self.pipelines = pipelines
        self._clients: dict[str, tuple[tuple[Any, ...], Any]] = {}
        """By arm: what the client was like when that of the arm was made, and that."""
        self._lock = threading.Lock()
        self._failed = False

    def choose(self, client: Any, options: Any) -> tuple[Any, Assigned | None]:
        """The client whose plays a call goes through, and how that is counted. Never raises.

        The client itself, and nothing to count, for calls that no play shapes.
        """
        if options.url not in GENERATING:
            return client, None
        try:
            return self._chosen(client, options)
        except Exception as error:  # noqa: BLE001 - an experiment must not break a call
            if not self._failed:
                self._failed = True
                log.warning(
                    "the experiment %r could not assign a call (%s): it goes by the client's own plays (logged once)",
                    self.experiment.name,
                    type(error).__name__,
                )
            return client, None

    def _chosen(self, client: Any, options: Any) -> tuple[Any, Assigned]:
        experiment = self.experiment
        ledger, view = experiment._ledger, experiment._ledger.view
        if not experiment._counting.is_running:
            experiment._counting.start()
        unit = unit_id(experiment._unit_of, options)
        drawn = draw_anew() if unit is None else draw(experiment._key, unit)
        reference = experiment.reference
        why: Any = None
        if view is None:
            arm = asked = reference
            stage, why = 0, "unknown"
        else:
            arm = asked = view.allocation.arm_at(drawn.point)
            stage = view.stage
            if arm in view.ended:
                arm, why = reference, "ended"
        try:
            chosen = self._client_of(client, arm)
        except Exception as error:  # noqa: BLE001 - of an application's own class, perhaps
            self._say_once(arm, error)
            why = "failed"
            arm = reference
            chosen = self._client_of(client, arm)
        assigned = Assigned(ledger, arm, drawn.unit_id_hash, stage=stage, is_lone=unit is None, drawn=asked, why=why)
        return chosen, assigned

    def _client_of(self, client: Any, arm: str) -> Any:
        # An application may set these on its client between two calls.
        state = (
            client.api_key, client.base_url, client.timeout, client.max_retries, client.organization, client.project,
            given_headers(client), given_query(client), http_client_of(client),
        )  # fmt: skip
        found = self._clients.get(arm)
        if found is not None and found[0] == state:
            return found[1]
        with self._lock:
            made = self._made(client, arm)
            self._clients[arm] = state, made
        return made

    def _made(self, client: Any, arm: str) -> Any:
        """The client itself where an arm has its plays, or one like it."""
        pipeline = self.pipelines.of(arm, self.experiment.arms[arm])
        if pipeline is client._fastlane.pipeline:
            return client
        made = self.copy(client, only_plays=pipeline.plays)
        made._fastlane.pipeline = pipeline
        return made

    def _say_once(self, arm: str, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            log.warning(
                "the experiment %r could not make a client for its arm %r (%s): its calls go to the reference arm "
                "(logged once)",
                self.experiment.name,
                arm,
                type(error).__name__,
            )

    def others(self, client: Any) -> list[Any]:
        """The clients that were made beside it, to be closed with it."""
        return [made for _, made in self._clients.values() if made is not client]


def _is(one: object, other: object) -> bool:
    return one is other
