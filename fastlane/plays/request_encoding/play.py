"""02 Shorten the wire: a request's body gzipped, in MessagePack or both, where the provider takes it and it pays."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.errors import ConfigurationError
from fastlane.protocol.endpoints import GENERATING
from fastlane.records.attempts import Form

from .plan import Encode
from .section import EncodingSection

if TYPE_CHECKING:
    from fastlane.providers import ProviderFacts

_FORMS: tuple[Form, ...] = get_args(Form)
# MessagePack makes gzipped text less than two per cent smaller, and takes a library and the provider's more rarely used
# parser: it comes first only where a body holds what JSON writes badly.
_FOR_TEXT: tuple[Form, ...] = ("json+gzip", "msgpack+gzip", "msgpack")
_FOR_NUMBERS_AND_BYTES: tuple[Form, ...] = ("msgpack+gzip", "json+gzip", "msgpack")
_OF_THE_BODY = frozenset({"content-type", "content-encoding"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding(Play):
    """Send a prompt's body in fewer bytes where that saves round trips, and the provider is known to take it.

    Whether it pays is decided for each call, when its connection is known. A body that is refused is sent again as JSON
    at once, and the provider is not sent such bodies for a day.
    Raises ConfigurationError for a setting that cannot work.
    """

    stage: ClassVar[Stage] = Stage.ENCODE
    section = EncodingSection
    needs_facts: ClassVar[bool] = True
    keeps_bodies: ClassVar[bool] = True
    compresses_bodies: ClassVar[bool] = True

    forms: tuple[Form, ...] | None = None
    """Forms that may be used; None for all that the provider takes."""
    # A new or an idle connection sends ten segments at once: 14 kB with the request's head, and 11.5 kB where segments
    # are as small as IPv6 and a tunnel make them (1,220 bytes). Fewer bytes than that save no round trip.
    min_bytes: int = 11_000
    """Bodies that are smaller as JSON are sent as they are."""
    # Level 9, Python's own default, takes fourteen times the CPU of level 1 for the same number of round trips.
    gzip_level: int = 1
    """1 (fast) to 9 (small). More than 1 pays on slow uplinks only, below some 20 Mbit/s."""
    probe: bool = False
    """Whether to find out what a provider takes where that is not known, with requests that hold no prompt to bill."""
    uplink_bits_per_s: float | None = None
    """What the uplink carries; None: what the kernel has seen it carry where that is known, and no limit elsewhere."""
    facts: ProviderFacts | str | os.PathLike[str] | None = None
    """What is known of the provider, laid over what fastlane knows: an object, or the path of a facts file."""
    remember: str | os.PathLike[str] | None = None
    """A file in which to keep what was found out about providers; None for as long as the process lives."""

    def __post_init__(self) -> None:
        self._check_forms()
        if not isinstance(self.min_bytes, int) or isinstance(self.min_bytes, bool) or self.min_bytes < 0:
            raise ConfigurationError(
                f"Encoding(min_bytes=...) takes a whole number of bytes from 0, got {self.min_bytes!r}"
            )
        if not isinstance(self.gzip_level, int) or isinstance(self.gzip_level, bool) or not 1 <= self.gzip_level <= 9:
            raise ConfigurationError(
                f"Encoding(gzip_level=...) takes a whole number from 1 to 9, got {self.gzip_level!r}"
            )
        if not isinstance(self.probe, bool):
            raise ConfigurationError(f"Encoding(probe=...) takes True or False, got {self.probe!r}")
        rate = self.uplink_bits_per_s
        if rate is not None and (
            not isinstance(rate, int | float) or isinstance(rate, bool) or not 1_000 <= rate <= 1e12
        ):
            raise ConfigurationError(
                "Encoding(uplink_bits_per_s=...) takes bits per second from 1,000 to 1e12 (20 Mbit/s are 20e6), or "
                f"None where the uplink is not known to limit, got {rate!r}"
            )
        self._load_facts()
        if self.remember is not None:
            path: Any = os.fspath(self.remember) if isinstance(self.remember, os.PathLike) else self.remember
            if not isinstance(path, str) or not path or "\0" in path:
                raise ConfigurationError(
                    f"Encoding(remember=...) takes the path of a file, or None for none, got {self.remember!r}"
                )
            path = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - wherever the process goes later
            if os.path.isdir(path):  # noqa: PTH112
                raise ConfigurationError(f"Encoding(remember=...) takes the path of a file, got the directory {path}")
            object.__setattr__(self, "remember", path)

    def _check_forms(self) -> None:
        forms: Any = self.forms
        if forms is None:
            return
        if isinstance(forms, list):
            forms = tuple(forms)
            object.__setattr__(self, "forms", forms)
        if not isinstance(forms, tuple) or not forms or not all(form in _FORMS for form in forms):
            known = ", ".join(f'"{form}"' for form in _FORMS)
            raise ConfigurationError(
                f"Encoding(forms=...) takes a tuple of {known}, or None for all, got {self.forms!r}"
            )

    def _load_facts(self) -> None:
        if self.facts is None:
            return
        from fastlane.providers import ProviderFacts, facts_named, load

        if isinstance(self.facts, str | os.PathLike):
            # Loaded here and not when a call is planned. In the repr, the facts themselves say more than a path would.
            object.__setattr__(self, "facts", load(os.fsdecode(self.facts)))
        elif not isinstance(self.facts, ProviderFacts):
            raise ConfigurationError(
                "Encoding(facts=...) takes ProviderFacts, the path of a facts file, or None for what fastlane knows, "
                f"got {type(self.facts).__name__}"
            )
        elif self.facts.extends is not None:
            object.__setattr__(self, "facts", self.facts.over(facts_named(self.facts.extends)))

    def encoded_share(self, origin: str, endpoint: str) -> float | None:
        """Return the share of its bytes that gzip leaves of a body."""
        from ._shares import shares
        from ._verdicts import Key

        # What is sent below another path than the usual one has shares of its own: the first guess does.
        return shares.expected(Key(origin, f"/v1{endpoint}", "json+gzip"))

    def plan(self, call: Call) -> Call:
        """Say in which forms the body of a prompt may be sent; whether one of them pays is known when it is."""
        if call.endpoint not in GENERATING or call.get(Encode) is not None:
            return call
        if any(name.lower() in _OF_THE_BODY for name in call.headers):
            return call
        facts: Any = call.facts if self.facts is None else _laid_over(self.facts, call.facts)
        taken: tuple[Form, ...] | None = None if facts is None else facts.forms(call.endpoint)
        binary_parts = facts.binary_parts if facts is not None else None
        parts: tuple[str, ...] = (binary_parts.value or ()) if binary_parts is not None else ()
        best = _FOR_NUMBERS_AND_BYTES if _holds_numbers_or_bytes(call.body, parts) else _FOR_TEXT
        media_type = facts.media_types.get("msgpack") if facts is not None else None
        encode = Encode(
            forms=tuple(
                form for form in best if (taken is None or form in taken) and (self.forms is None or form in self.forms)
            ),
            known=taken is not None,
            probe=self.probe,
            min_bytes=self.min_bytes,
            gzip_level=self.gzip_level,
            uplink_bytes_per_s=None if self.uplink_bits_per_s is None else self.uplink_bits_per_s / 8,
            binary_parts=parts,
            remember=None if self.remember is None else os.fspath(self.remember),
        )
        if media_type is not None and media_type.value is not None:
            encode = encode._replace(msgpack_type=media_type.value)
        return call.with_data(encode)


# By what was laid over what, with both, so that an address in memory means what it meant.
_laid: dict[tuple[int, int], tuple[Any, Any, Any]] = {}
_MOST_LAID = 64


def _laid_over(own: Any, known: Any) -> Any:
    """The application's facts over those of the origin, fact by fact; remembered, because that takes a millisecond."""
    if known is None:
        return own
    found = _laid.get((id(own), id(known)))
    if found is not None and found[0] is own and found[1] is known:
        return found[2]
    if len(_laid) >= _MOST_LAID:
        _laid.clear()
    whole = own.over(known)
    _laid[id(own), id(known)] = (own, known, whole)
    return whole


def _holds_numbers_or_bytes(body: Mapping[str, Any], parts: tuple[str, ...]) -> bool:
    """Whether a body holds a prompt as token ids, or base64 text that may go as bytes."""
    prompt = body.get("prompt")
    first = prompt[0] if isinstance(prompt, list | tuple) and prompt else None
    if isinstance(first, list | tuple):  # several prompts
        first = first[0] if first else None
    if isinstance(first, int) and not isinstance(first, bool):
        return True
    return any(_has_text(body, part.split(".")) for part in parts)


def _has_text(value: Any, path: list[str]) -> bool:
    """Whether there is a text at the end of a path such as "messages[].content[].input_audio.data"."""
    if not path:
        return isinstance(value, str)
    name, rest = path[0], path[1:]
    if not isinstance(value, Mapping):
        return False
    inner = value.get(name.removesuffix("[]"))
    if name.endswith("[]"):
        return isinstance(inner, list | tuple) and any(_has_text(member, rest) for member in inner)
    return _has_text(inner, rest)
