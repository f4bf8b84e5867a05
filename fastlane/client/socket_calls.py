"""The record and the span of each response that comes over a WebSocket."""

from __future__ import annotations

from collections import defaultdict, deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from .._clock import now_ns
from ..compat.response_sockets import Events, event_of
from ..engine.call_state import CallState
from ..engine.flow import begin_trace
from ..errors import ConfigurationError
from ..protocol.endpoints import RESPONSES
from ..protocol.fields import field, safe_name, string

if TYPE_CHECKING:
    from ..engine.client_state import ClientState

_CREATED = "response.created"


class SocketCalls:
    """Watches one socket: from each `response.create` to the last event of its response.

    The responses of one lane (`stream_id`) come in the order of their requests. One thread may send while another
    receives.
    """

    def __init__(self, client: Any, socket: Any, events: Events) -> None:
        self._client = client
        self._socket = socket
        self._events = events
        self._lanes: defaultdict[str | None, deque[CallState]] = defaultdict(deque)

    def _begin(self, lane: str | None, asked: dict[str, Any], size: int | None) -> CallState:
        client_state: ClientState = self._client._fastlane
        url = self._client.base_url
        state = CallState(
            client_state.pipeline,
            method="POST",
            endpoint=RESPONSES,
            origin=client_state.origin(url),
            stream=True,
            transport=client_state.transport,
        )
        state.client, state.streaming, state.decoded = self._client, True, True
        model = asked.get("model")
        state.model = model if isinstance(model, str) else None
        begin_trace(state)
        attempt = state.begin_attempt(size)
        phases = attempt.phases
        phases.opening, phases.reused, phases.http_version = self._socket.opening, True, "WebSocket"
        phases.started_ns = phases.send_started_ns = now_ns()
        if state.trace is not None:
            state.trace.planned(state, asked)
            state.trace.attempting(state, SimpleNamespace(headers={}))
        self._lanes[lane].append(state)
        return state

    def sending(self, message: Any) -> Any:
        """Begin the record of a response that is about to be requested."""
        asked = event_of(message)
        if asked is None:
            return None
        model = asked.get("model")
        if isinstance(model, str) and model.startswith("fastlane/"):
            raise ConfigurationError(
                f"the model {model!r} is fastlane's own, and no play routes calls over a WebSocket: name a model of "
                "the provider, or use responses.create() over HTTP"
            )
        return self._begin(_lane(asked.get("stream_id")), asked, len(message))

    def sent(self, sending: Any, error: BaseException | None) -> None:
        """Note that a request was sent, or could not be."""
        if sending is None:
            return
        if error is None:
            sending.attempts[-1].phases.send_ended_ns = now_ns()
        else:
            for lane in self._lanes.values():
                if sending in lane:
                    lane.remove(sending)
            self._end(sending, error)

    def received(self, message: Any) -> None:
        """Record an event in its response, and end that with its last event."""
        arrived_ns, event = now_ns(), self._events.received(message)
        kind, lane = getattr(event, "type", None), _lane(getattr(event, "stream_id", None))
        calls = self._lanes.get(lane)
        if calls:
            state = calls[0]
        elif kind == _CREATED:  # of what was said by `response.steer`
            state = self._begin(lane, {"model": getattr(event.response, "model", None)}, None)
        else:
            return
        attempt, answer = state.attempts[-1], state.answer
        state.received_bytes += len(message)
        answer.arrived_ns = arrived_ns
        attempt.phases.data_ns.append(arrived_ns)
        if attempt.phases.first_byte_ns is None:
            attempt.phases.first_byte_ns = arrived_ns
        if kind == "error":
            error = getattr(event, "error", None)
            attempt.status_code = getattr(event, "status", None)
            state.error, state.outcome = safe_name(string(field(error, "code"))), "failed"
        else:
            attempt.status_code = 200
            answer.event(event)
        if kind == "error" or answer.finished:
            attempt.phases.answer_ended_ns = arrived_ns
            state.is_done = state.exhausted = True
            self._lanes[lane].popleft()
            state.finish()

    def closed(self, error: BaseException | None) -> None:
        """End the records of all responses that have not ended."""
        for lane in list(self._lanes.values()):
            while lane:
                self._end(lane.popleft(), error)

    def abandoned(self) -> None:
        """End the records from a finalizer."""
        for lane in list(self._lanes.values()):
            while lane:
                lane.popleft().abandoned()

    @staticmethod
    def _end(state: CallState, error: BaseException | None) -> None:
        if error is not None and type(error).__name__ != "ConnectionClosedOK":
            state.attempt_failed(error)
            state.failed(error)
        state.finish()


def _lane(name: object) -> str | None:
    return name if isinstance(name, str) else None
