"""The arms of one client: which arm a call goes to, and the client that has that arm's plays."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from .._fork import new_lock
from ..compat.clients import given_headers, given_query, http_client_of
from ..engine.pipeline import Pipeline
from ..protocol.endpoints import GENERATING
from ..records.record import ExperimentRecord, Why
from .experiment import Experiment, arm_at, draw, unit_id
from .ledger import ArmAssignment

log = logging.getLogger("fastlane")


class ClientArms:
    """Chooses an arm for the calls of one client.

    `copy` copies a client: fastlane's own method, whatever a subclass makes of it. `shared`: the arms of a client with
    the same pipeline, whose arms have the same pipelines too.
    """

    def __init__(
        self, experiment: Experiment, own: Pipeline, copy: Callable[..., Any], shared: ClientArms | None = None
    ) -> None:
        self.experiment = experiment
        self.copy = copy
        self.pipelines: dict[str, Pipeline]
        if shared is not None and shared.experiment is experiment:
            self.pipelines = shared.pipelines
        else:
            self.pipelines = {arm: _pipeline(own, plays) for arm, plays in experiment.arms.items()}
        self._clients: dict[str, tuple[tuple[Any, ...], Any]] = {}
        """By arm: the options of the client when that of the arm was made, and the latter."""
        self._lock = new_lock()
        self._logged: set[str] = set()

    def choose(self, client: Any, options: Any) -> tuple[Any, ArmAssignment | None]:
        """Return the client whose plays a call goes through, and how the call is counted. Never raises.

        That is the client itself, and None, for calls that no play shapes.
        """
        if options.url not in GENERATING:
            return client, None
        try:
            return self._chosen(client, options)
        except Exception as error:  # noqa: BLE001 - an experiment must not break a call
            self._log_once("could not assign a call: it goes by the client's own plays", error)
            return client, None

    def _chosen(self, client: Any, options: Any) -> tuple[Any, ArmAssignment]:
        experiment = self.experiment
        ledger, reference = experiment.ledger, experiment.reference
        ledger.start()
        unit = draw(experiment.key, unit_id(experiment.unit_of, options))
        drawn = arm = arm_at(unit.point, experiment.shares, reference)
        why: Why | None = None
        if ledger.ended is None:
            arm, why = reference, "unknown"
        elif arm in ledger.ended:
            arm, why = reference, "ended"
        try:
            chosen = self._client_of(client, arm)
        except Exception as error:  # noqa: BLE001 - a subclass that cannot be copied, for example
            self._log_once("could not make a client for an arm: its calls go to the reference arm", error)
            arm, why = reference, "failed"
            chosen = self._client_of(client, arm)
        record = ExperimentRecord(name=experiment.name, arm=arm, unit_id_hash=unit.unit_id_hash, drawn=drawn, why=why)
        return chosen, ArmAssignment(record, ledger)

    def _client_of(self, client: Any, arm: str) -> Any:
        # The user may set these on the client between two calls.
        state = (
            client.api_key, client.base_url, client.timeout, client.max_retries, client.organization, client.project,
            given_headers(client), given_query(client), http_client_of(client),
        )  # fmt: skip
        found = self._clients.get(arm)
        if found is not None and found[0] == state:
            return found[1]
        with self._lock:
            pipeline, made = self.pipelines[arm], client
            if pipeline is not client._fastlane.pipeline:
                made = self.copy(client, only_plays=pipeline.plays)
                made._fastlane.pipeline = pipeline
            self._clients[arm] = state, made
        return made

    def _log_once(self, text: str, error: Exception) -> None:
        if text not in self._logged:
            self._logged.add(text)
            name = self.experiment.name
            log.warning("the experiment %r %s (%s, logged once)", name, text, type(error).__name__)

    def others(self, client: Any) -> list[Any]:
        """Return the clients that were made for arms. They are closed with this one."""
        return [made for _, made in self._clients.values() if made is not client]


def _pipeline(own: Pipeline, plays: tuple[Any, ...]) -> Pipeline:
    """Return the pipeline of an arm: the client's own where it has the same plays."""
    if len(plays) == len(own.plays) and all(one is other for one, other in zip(plays, own.plays, strict=True)):
        return own
    made = Pipeline(plays, own.on_call_end, raise_play_errors=own.raise_play_errors)
    made.share_log_of(own)
    return made
