"""One call before it is sent: frozen data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..records.attempts import Form
from ..records.prompt import CurationRecord
from ..records.urgency import Level

if TYPE_CHECKING:
    from ..plays.bounded_output.outputs._plan import OutputPlan
    from ..plays.hedging._plan import HedgePlan
    from ..plays.prompt_cache.prefixes._account import PromptAccount
    from ..plays.routing._plan import RoutePlan
    from ..plays.urgency.tiers._plan import UrgencyPlan
    from ..providers import ProviderFacts


class Encode(NamedTuple):
    """Other forms in which a call's body may be sent, where that pays."""

    forms: tuple[Form, ...]
    """The best first; without "json", which is always allowed."""
    known: bool
    """Whether the provider's facts say that it takes them; False where nobody knows."""
    probe: bool = False
    """Whether to find out what is not known, without a call of the application's."""
    min_bytes: int = 0
    """Bodies below this many bytes of JSON are sent as they are."""
    gzip_level: int = 1
    uplink_bytes_per_s: float | None = None
    """What the uplink carries; None: what the kernel has seen it carry, or no limit."""
    msgpack_type: str = "application/vnd.msgpack"
    """The content type of MessagePack."""
    binary_parts: tuple[str, ...] = ()
    """Paths in the body whose base64 text MessagePack may carry as bytes: "messages[].content[].input_audio.data"."""
    remember: str | None = None
    """A file in which to keep what was found out about providers; None for this process only."""


class Upstreams(NamedTuple):
    """What is known of the upstreams of a call, asked without opening or waiting for anything."""

    outlook: Callable[[Any], Any]
    """Of a model of the catalog: what is known of the connection to it (`transport._outlook.Outlook`)."""
    missing_key: Callable[[Any], str | None]
    """Of a model of the catalog: why it cannot be called for want of a key; None where it can."""
    encoded_share: Callable[[str], float | None] | None = None
    """Of an origin: the share of its bytes that a body has there once it is encoded; None where none is."""
    is_checked: bool = False
    """Whether a play checks answers against their schema, so that a provider need not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is about to be sent, for plays to rewrite; a play returns a new Call and leaves this one as it is."""

    call_id: str
    endpoint: str
    """The path below the base URL, such as "/chat/completions"."""
    origin: str
    """scheme://host:port of the provider."""
    body: Mapping[str, Any]
    """The JSON body, `extra_body` merged in. Never changed in place: it may be the caller's own mapping."""
    stream: bool
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that plays add to the request. Neither the caller's headers nor any credential are in here."""
    changes: tuple[str, ...] = ()
    """What plays changed, one sentence each."""
    facts: ProviderFacts | None = None
    """What is known of the provider; None unless a play needs it (`Play.needs_facts`)."""
    encoding: Encode | None = None
    """Other forms in which the body may be sent; None for JSON and nothing else."""
    issued_ns: int = 0
    """When the application issued it: monotonic nanoseconds, for plays that know what was sent when."""
    placements: tuple[Any, ...] | None = None
    """What the caller declared of each message, or of each part of its content: see `fastlane.Prompt`; None where
    nothing was declared."""
    prompt: PromptAccount | None = None
    """What is to be expected of the provider's prompt cache, which is settled when the call is over."""
    optional: tuple[str, ...] = ()
    """Fields of the body that a play added: where the provider refuses one, the call is sent again without them."""
    refused: frozenset[str] = frozenset()
    """Fields that the provider has refused for this model within the last hour: plays do not add them."""
    curation: CurationRecord | None = None
    """What was cut from the conversation."""
    unread: bool = False
    """The application reads the bytes of the answer itself (`with_streaming_response`): nobody else may."""
    output: OutputPlan | None = None
    """How the answer is to be watched, checked and repaired."""
    upstreams: Upstreams | None = None
    """What is known of the upstreams that the call may go to; None unless one is to be chosen."""
    extra: frozenset[str] = frozenset()
    """Names of the body's fields that the caller gave by `extra_body`."""
    written: bytes | None = None
    """The body as it would be sent if nothing changed it, where that has been written already."""
    route: RoutePlan | None = None
    """Which upstreams are to be tried, in which order; None for a call that names its model itself."""
    hedge: HedgePlan | None = None
    """When a second attempt is to be made, if the first is late."""
    urgency: Level | None = None
    """How urgent the application says that it is; None where it has not said."""
    urgency_plan: UrgencyPlan | None = None
    """How it comes to its place, and which tier it asks for."""

    @property
    def model(self) -> str | None:
        """The model asked for; None where the body names none."""
        model = self.body.get("model")
        return model if isinstance(model, str) else None

    def with_body(self, changed: str, **fields: Any) -> Call:
        """This call with `fields` set in its body, `changed` saying so on the record."""
        return self.replaced(body={**self.body, **fields}, changes=(*self.changes, changed))

    def replaced(self, **fields: Any) -> Call:
        """This call with other values of its own fields, at a third of the CPU of `dataclasses.replace`."""
        call = object.__new__(Call)
        for name in _CALL_FIELDS:
            object.__setattr__(call, name, fields[name] if name in fields else getattr(self, name))
        return call


_CALL_FIELDS = tuple(Call.__dataclass_fields__)
