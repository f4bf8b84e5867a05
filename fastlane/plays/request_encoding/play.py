"""02 Shorten the wire: a request's body gzipped, in MessagePack or both, where the provider takes it and it pays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args

from pydantic import AfterValidator, Field

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.engine.session import Session
from fastlane.engine.settings import settings
from fastlane.errors import ConfigurationError
from fastlane.protocol.endpoints import GENERATING
from fastlane.records.attempts import Form

from .section import RequestEncodingSection
from .session import RequestEncodingSession

if TYPE_CHECKING:
    from fastlane.providers import ProviderFacts
else:
    ProviderFacts = Any

_Forms = Annotated[
    Sequence[Form],
    AfterValidator(tuple),
    Field(min_length=1, description=f"a tuple of {', '.join(map(repr, get_args(Form)))}"),
]


@settings
class RequestEncoding(Play):
    """Send a prompt's body in fewer bytes where that may save round trips, and the provider takes it.

    To a server that turns out to be so near that encoding takes longer than a round trip, JSON is sent for ten minutes.
    A body that is refused is sent again as JSON at once, and the provider is sent JSON for ten minutes. Raises
    ConfigurationError for facts that are not valid.
    """

    stage: ClassVar[Stage] = Stage.ENCODE
    section = RequestEncodingSection
    needs_facts: ClassVar[bool] = True
    keeps_bodies: ClassVar[bool] = True

    forms: _Forms | None = None
    """Forms that may be used, also where it is not known whether the provider takes them; None for all that it is known
    to take."""
    # A new or an idle connection sends ten segments at once: 14 kB with the request's head, and 11.5 kB where segments
    # are as small as IPv6 and a tunnel make them (1,220 bytes). Fewer bytes than that save no round trip.
    min_bytes: Annotated[int, Field(ge=0)] = 11_000
    """Bodies that are smaller as JSON are sent as they are."""
    # Level 9, Python's own default, takes fourteen times the CPU of level 1 for the same number of round trips.
    gzip_level: Annotated[int, Field(ge=1, le=9)] = 1
    """1 (fast) to 9 (small). More than 1 pays below some 20 Mbit/s only."""
    facts: ProviderFacts | str | os.PathLike[str] | None = None
    """What is known of the provider, before what fastlane knows: ProviderFacts, or the path of a facts file."""

    def __post_init__(self) -> None:
        given = self.facts
        if given is not None:
            from fastlane.providers import ProviderFacts, facts_named, load

            if isinstance(given, str | os.PathLike):
                # In the repr, the facts themselves say more than a path would.
                given = load(os.fsdecode(given))
            elif not isinstance(given, ProviderFacts):
                raise ConfigurationError(
                    "RequestEncoding(facts=...) takes ProviderFacts, the path of a facts file, or None for what "
                    f"fastlane knows, got {type(given).__name__}"
                )
            elif given.extends is not None:
                given = given.over(facts_named(given.extends))
        object.__setattr__(self, "facts", given)

    def open(self, call: Call) -> Session | None:
        """Take part in calls that send a prompt."""
        if call.endpoint not in GENERATING:
            return None
        return RequestEncodingSession(self)
