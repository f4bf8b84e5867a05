"""One way of a call: a client, the observation of what happens there, and how long it is waited for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from fastlane._clock import now_ns
from fastlane.compat.clients import status_error_of
from fastlane.transport.protocols.exchange import Patience

from ..call import Call
from ._failures import failure_of_status
from ._left import Left, Why

if TYPE_CHECKING:
    from fastlane.knowledge.prediction._sighting import Failure
    from fastlane.plays.hedging._plan import HedgePlan
    from fastlane.plays.routing.catalog._models import CatalogModel
    from fastlane.providers import ProviderFacts

    from ..effects import Racer
    from ..observation import Observation
Kind = Literal["first", "fallback", "hedge"]


class Leg:
    """One way of a call. Sans-IO."""

    __slots__ = (
        "_to_begin", "client", "deadline_ns", "doubtful", "facts", "hedge", "instead", "is_late", "is_lost",
        "is_unread", "kind", "may_leave", "model", "observation", "options", "over", "patience", "racer", "request",
        "started_ns", "streams", "wait_s", "was_claimed",
    )  # fmt: skip

    def __init__(
        self,
        client: Any,
        observation: Observation,
        *,
        kind: Kind,
        model: CatalogModel | None,
        streams: bool,
        deadline_ns: int | None,
        avoid: str | None = None,
    ) -> None:
        self.client = client
        """The client of the upstream: the application's own, or one of its siblings."""
        self.observation = observation
        self.kind: Kind = kind
        self.model = model
        """The catalog's; None where the call names its model itself."""
        self.streams = streams
        """Whether the answer is streamed to us, though the application does not stream."""
        self.deadline_ns = deadline_ns
        """When the time of the whole call is up."""
        self.options: Any = None
        self.doubtful: tuple[str, ...] = ()
        """Fields of the body that the upstream may refuse, and that the call can go without."""
        self.facts: ProviderFacts | None = None
        """What is known of the provider, where the catalog says more of that than the address."""
        self.patience = Patience(until_ns=deadline_ns, avoid=avoid)
        self.racer: Racer | None = None
        """Its part in a race with a second attempt; None without one."""
        self.over: Callable[..., None] | None = None
        """Told once it has its first token, or will have none any more: `answered`. May be told again."""
        self.hedge: HedgePlan | None = None
        self.may_leave = False
        """Whether another upstream is left, so that an answer without content need not be handed out."""
        self.instead: Leg | None = None
        """The way whose error ends this one, because its content had come first."""
        self.is_late = False
        self.is_lost = False
        self.is_unread = False
        """The application reads the bytes of the answer itself."""
        self.request: Any = None
        """The last request that was sent, which openai's errors name."""
        self.was_claimed = False
        """Its first content has come, before any other's."""
        self.wait_s = 0.0
        """Seconds to wait before it begins."""
        self.started_ns = 0
        self._to_begin: list[Callable[[], None]] = []
        """What is to be done once it has its place."""
        observation.leg = self
        if kind != "first":
            observation.next_kind = kind

    def planned(self, call: Call) -> Call:
        """Take note of what was planned for the call here; the call, streamed underneath where that is to be."""
        from fastlane.plays.hedging._plan import HedgePlan

        self.hedge, self.is_unread = call.get(HedgePlan), call.unread
        if self.doubtful:
            call = call.replaced(optional=(*call.optional, *self.doubtful))
        hedges = self.hedge is not None and self.hedge.streams
        if not (self.streams or hedges):
            return call
        from ._streaming_underneath import collector_of, streamed

        underneath = streamed(call, play="Routing" if self.streams else "Hedging")
        if underneath is None:
            return call
        self.observation.collector = collector_of(underneath)
        return underneath

    @property
    def connection(self) -> str | None:
        """The connection that its last attempt is on, by its local address; None where that is not known."""
        attempts = self.observation.attempts
        opening = attempts[-1].phases.opening if attempts else None
        return opening.local_address if opening is not None else None

    @property
    def shows_first_token(self) -> bool:
        """Whether it can be seen when the answer begins: one that comes at once may well take as long as it takes."""
        observation = self.observation
        puts_together = observation.guard or observation.collector
        return observation.stream or (puts_together is not None and puts_together.collects)

    def begin(self, first_token_timeout_s: float | None) -> None:
        """It begins now. `first_token_timeout_s`: for how long it is waited for; None: as long as for the call."""
        self.started_ns = now_ns()
        if first_token_timeout_s is not None and self.shows_first_token:
            until_ns = self.started_ns + int(first_token_timeout_s * 1e9)
            self.patience.until_ns = until_ns if self.deadline_ns is None else min(until_ns, self.deadline_ns)

    def when_placed(self, act: Callable[[], None]) -> None:
        """Do something once it has its place: at once, where it needs none or has it."""
        if self.observation.urgent is None or self.started_ns:
            act()
        else:
            self._to_begin.append(act)

    def has_place(self, waited_ns: int) -> None:
        """It has its place, after a wait in our own queue, which makes no upstream late."""
        acts, self._to_begin = self._to_begin, []
        for act in acts:
            act()
        patience = self.patience
        if not acts and patience.until_ns is not None and patience.until_ns != self.deadline_ns:
            until_ns = patience.until_ns + waited_ns
            patience.until_ns = until_ns if self.deadline_ns is None else min(until_ns, self.deadline_ns)

    # What the driver of an attempt asks

    def check(self) -> None:
        """Raise Left if this way is not to be gone on with."""
        if self.is_lost:
            raise Left("lost")

    def left_by(self, error: Exception) -> Left | None:
        """What the failure of an attempt ends this way with; None where openai's own loop is to look at it."""
        time_ns = now_ns()
        if self.is_lost:
            return self._left("lost", error)
        if self.deadline_ns is not None and time_ns >= self.deadline_ns:
            return self._left("deadline", error)
        until_ns = self.patience.until_ns
        if not self.was_claimed and until_ns is not None and time_ns >= until_ns:
            self.is_late = True
            if self.observation.attempts:
                self.observation.attempts[-1].given_up = "late"
            return self._left("timeout", error)
        if self._gives_way():
            return self._left("connection", error)
        return None

    def races(self, racer: Racer) -> None:
        """Take part in a race with another attempt."""
        self.racer = racer
        racer.on_cancel = self.lose

    def _gives_way(self) -> bool:
        return self.racer is not None and self.racer.give_way()

    def comes_at_once(self) -> None:
        """The provider refuses to stream: the whole answer is waited for."""
        if self.patience.until_ns is not None:
            self.patience.until_ns = self.deadline_ns

    def before_retry(self, response: Any, wait_s: float) -> None:
        """The loop of openai's is about to wait and try again: raise Left where it is not to.

        That is so where another way is under way instead, and where there is no time for the wait. `response` is the
        answer that was no success; None where none came.
        """
        if self.is_lost:
            raise Left("lost")
        error = None if response is None else status_error_of(response, self.client)
        why = (None if response is None else failure_of_status(response.status_code)) or "server"
        if self._gives_way():
            raise self._left(why, error)
        if self.deadline_ns is not None and now_ns() + wait_s * 1e9 >= self.deadline_ns:
            raise self._left("deadline", error)

    def _left(self, why: Why, error: Exception | None = None) -> Left:
        left = Left(why, error)
        if left.request is None:
            left.request = self.request
        return left

    def no_content(self, why: Failure) -> None:
        """Raise Left where a response without content is not to be handed out."""
        if self._gives_way() or self.may_leave:
            raise self._left(why)

    def claim(self) -> None:
        """The first content has come. Raises Cancelled if that of another attempt came before."""
        if self.racer is not None:
            self.racer.win()
        self.was_claimed = True
        if self.over is not None:
            self.over(answered=True)
        # What is read from here on has the call's own time-outs, and an answer that is put together here the deadline.
        self.patience.until_ns = None if self.observation.stream or self.is_unread else self.deadline_ns

    def lose(self) -> None:
        """Another attempt's content came first."""
        self.is_lost = True
        self.ended()
        attempts = self.observation.attempts
        if attempts:
            attempts[-1].given_up = "lost"
            if attempts[-1].ended_ns is None:
                attempts[-1].ended_ns = now_ns()

    def ended(self) -> None:
        """Nobody waits for its first token any more."""
        over = self.over
        if over is None:
            return
        if isinstance(sys.exception(), GeneratorExit):  # a task that is garbage-collected
            self.observation.pipeline.report_later(partial(over, answered=False))
        else:
            over(answered=False)

    def let_go(self) -> None:
        """The call is over, one way or another: keep nothing of it."""
        self.ended()
        self.over = None
        self.options = self.request = None
        self.racer = self.instead = None
        self._to_begin = []
        self.hedge = None
