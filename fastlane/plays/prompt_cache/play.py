"""03 Reuse more: what the provider's prompt cache should have held, what it did hold, why not more, and help."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import orjson

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.engine.session import CallOutcome, Session
from fastlane.errors import ConfigurationError
from fastlane.protocol.endpoints import CHAT, GENERATING, RESPONSES
from fastlane.records.usage import Usage

from .section import PromptCacheSection

if TYPE_CHECKING:
    from fastlane.records.prompt import PromptCacheRecord

    from .prefixes import CacheRules
    from .prefixes._account import PromptMemory
    from .prefixes._ledger import Sighting
    from .prefixes._outline import Outline

# Endpoints whose prompts have parts. The third takes one text, and no key.
_LISTS = {CHAT: "messages", RESPONSES: "input"}
_USUAL_KEY_FIELD = "prompt_cache_key"


class _Rules(NamedTuple):
    """What the play asks of a provider's facts."""

    cache: CacheRules
    key_field: str | None
    requests_per_key_per_minute: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCache(Play):
    """Keep track of what the provider's prompt cache should hold, and help it to hold more.

    As it stands it observes: the record of every call says which tokens the provider should have read from its cache,
    which it did read, and where and how the prompt departed from the one before. It adds a cache key where the provider
    is known to take one, and nothing else. What changes the prompt is done for calls that declare what is stable
    (`fastlane.prompts.Prompt`, `fastlane.prompts.stable`), and where a setting asks for it.
    Raises ConfigurationError for a setting that cannot work.
    """

    stage: ClassVar[Stage] = Stage.PREFIX
    section = PromptCacheSection
    needs_facts: ClassVar[bool] = True
    keeps_bodies: ClassVar[bool] = True

    key: bool | str = True
    """Whether to send a cache key where the provider takes one; a text: this key, for all calls of the client."""
    order_tools: bool = False
    """Whether to write tools in the order of their names, and each with its keys in order."""
    kept_bytes: int = 8 * 1024 * 1024
    """Bytes of sent prompts to keep in memory, so that a drift can be explained; 0: keep no text."""
    quote: bool = False
    """Whether the record of a drift quotes the text before and after it. The record then holds text of the prompt."""
    retention: str | None = None
    """How long the provider is asked to keep prefixes, in its own words ("30m"), where it takes that."""
    breakpoints: bool = False
    """Whether to mark the ends of stable and session parts where the provider has marks for that."""
    requests_per_key_per_minute: float | None = None
    """From which rate on a family's calls get several keys; None: what is known of the provider."""
    replicas: int = 1
    """How many processes like this one share the provider's cache: each sees its own share of the calls."""
    memory: PromptMemory = field(init=False, repr=False, compare=False)
    """What the play remembers: it is shared by all clients that this object is given to."""

    def __post_init__(self) -> None:
        if not isinstance(self.key, bool | str) or self.key == "":
            raise ConfigurationError(f"PromptCache(key=...) takes True, False or a text, got {self.key!r:.80}")
        for name in ("order_tools", "breakpoints", "quote"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigurationError(
                    f"PromptCache({name}=...) takes True or False, got {getattr(self, name)!r:.80}"
                )
        if not isinstance(self.kept_bytes, int) or isinstance(self.kept_bytes, bool) or self.kept_bytes < 0:
            raise ConfigurationError(
                f"PromptCache(kept_bytes=...) takes a whole number from 0, got {self.kept_bytes!r:.80}"
            )
        if self.retention is not None and (not isinstance(self.retention, str) or not self.retention):
            raise ConfigurationError(
                f'PromptCache(retention=...) takes a time in the provider\'s words ("30m"), got {self.retention!r:.80}'
            )
        rate: Any = self.requests_per_key_per_minute
        if rate is not None and (not isinstance(rate, int | float) or isinstance(rate, bool) or not rate > 0):
            raise ConfigurationError(
                "PromptCache(requests_per_key_per_minute=...) takes a number above 0, or None for what is known of the "
                f"provider, got {rate!r:.80}"
            )
        if not isinstance(self.replicas, int) or isinstance(self.replicas, bool) or self.replicas < 1:
            raise ConfigurationError(
                f"PromptCache(replicas=...) takes a whole number from 1, got {self.replicas!r:.80}"
            )
        # With the client and not with `import fastlane`.
        from .prefixes._account import PromptMemory

        memory = PromptMemory(quotes=self.quote, kept_bytes=self.kept_bytes, replicas=self.replicas)
        object.__setattr__(self, "memory", memory)

    def open(self, call: Call) -> Session | None:
        """Begin the play's part in a call."""
        return _PromptCacheSession(self) if call.endpoint in GENERATING else None

    def sight(self, call: Call) -> tuple[Call, Sighting, str | None]:
        """Return the call with its prompt in order and its key, what is to be expected, and the key's field."""
        from .prefixes._outline import outline

        rules = _rules_of(call.facts)
        call = self._ordered(call)
        tools = call.body.get("tools")
        outlined = outline(call.endpoint, call.body, _written(tools) if tools else None)
        name, key, shards = self._key(call, rules, *outlined)
        body, changes, optional = call.body, call.changes, call.optional
        if name is not None:
            body = {**body, name: key}
            changes, optional = (*changes, f"PromptCache added {name}"), (*optional, name)
        sighting = self.memory.ledger.sight(
            origin=call.origin,
            model=call.model,
            endpoint=call.endpoint,
            body=body,
            rules=rules.cache,
            now_ns=call.issued_ns,
            key=key,
            shards=shards,
            volatile=0 if call.placements is None else _volatile_at_the_end(call.placements),
            outlined=outlined,
        )
        call = call.replaced(body=body, changes=changes, optional=optional)
        # Marks are no part of what the model reads: what was seen of the prompt is as it was without them.
        return call if self.retention is None and not self.breakpoints else self._marked(call), sighting, name

    def _ordered(self, call: Call) -> Call:
        """The call laid out as its caller declared."""
        name = _LISTS.get(call.endpoint)
        if name is None or (call.placements is None and not self.order_tools):
            return call
        if call.placements is not None:
            call = _arranged(call, name)
        tools = call.body.get("tools")
        if isinstance(tools, list) and (call.placements is not None or self.order_tools):
            call = _with_tools(call, tools, ordered=self.order_tools)
        return call

    def _marked(self, call: Call) -> Call:
        """The call with what its provider is to be asked to keep, and for how long."""
        from .prefixes._placing import with_breakpoints, with_retention

        if self.retention is not None:
            call = with_retention(call, self.retention)
        name = _LISTS.get(call.endpoint)
        return with_breakpoints(call, name) if self.breakpoints and name is not None else call

    def _key(
        self, call: Call, rules: _Rules, outlined: Outline, segments: list[Any]
    ) -> tuple[str | None, str | None, int]:
        """The field to be added for a cache key, if any; the call's key; and among how many its family is spread."""
        name = rules.key_field
        given = call.body.get(_USUAL_KEY_FIELD)
        if given is None and name is not None:
            given = call.body.get(name)
        if name is None or given is not None or self.key is False or call.endpoint not in _LISTS:
            return None, given if isinstance(given, str) else None, 1
        if name in call.refused:
            return None, None, 1
        memory, key = self.memory, self.key
        if not isinstance(key, str):
            from .prefixes._too_short import is_too_short

            # Nothing of it is kept, wherever it goes: it is sent as it was written.
            if is_too_short(call.body, outlined, segments, rules.cache.minimum_tokens):
                return None, None, 1
            key = memory.key_of(call.endpoint, call.body, call.placements, outlined)
        limit = self.requests_per_key_per_minute or rules.requests_per_key_per_minute
        if limit is None:
            return name, key, 1
        session = memory.session_of(call.endpoint, call.body, call.placements, outlined)
        # The limit is the provider's: what goes to another with the same prompt does not count.
        counted = f"{call.origin} {key}"
        shard = memory.governor.shard(counted, session, call.issued_ns, limit_per_minute=limit)
        return name, shard.key[len(call.origin) + 1 :], shard.shards


class _PromptCacheSession(Session):
    """One call's prompt at one upstream."""

    __slots__ = ("_key_field", "_play", "_sighting")

    def __init__(self, play: PromptCache) -> None:
        self._play = play
        self._sighting: Sighting | None = None
        self._key_field: str | None = None

    def plan(self, call: Call) -> Call:
        call, self._sighting, self._key_field = self._play.sight(call)
        return call

    def close(self, outcome: CallOutcome) -> PromptCacheRecord | None:
        sighting, self._sighting = self._sighting, None
        if sighting is None:
            return None
        if self._key_field in outcome.refused:
            sighting.sent_without_key()
        status = outcome.status_code
        return sighting.settle(
            Usage() if outcome.usage.estimated else outcome.usage,
            answered=status is not None and status < 300,
            now_ns=outcome.ended_ns,
            provider_reason=outcome.cache_reason,
        )


def _arranged(call: Call, name: str) -> Call:
    from .prompts import arrange

    messages = call.body.get(name)
    if not isinstance(messages, list) or call.placements is None:
        return call
    arranged, placements = arrange(messages, call.placements)
    if len(arranged) != len(messages) or any(one is not other for one, other in zip(arranged, messages, strict=True)):
        call = call.with_body(f"PromptCache laid out {name} as declared: stable, session, volatile", **{name: arranged})
    return call.replaced(placements=placements)


def _with_tools(call: Call, tools: list[Any], *, ordered: bool) -> Call:
    from .prompts import canonical, ordered_tools

    # The order of properties is that in which models write arguments: `Prompt` is asked about it, not this.
    written = canonical(tools, keep_property_order=True)
    if ordered:
        written = ordered_tools(written)
    if repr(written) == repr(tools):  # equal dictionaries may have their keys in another order
        return call
    what = "in the order of their names, their keys in order" if ordered else "with their keys in order"
    return call.with_body(f"PromptCache wrote the tools {what}", tools=written)


# By the facts they were read from, with these, so that an address in memory means what it meant.
_read: dict[int, tuple[Any, _Rules]] = {}
_MOST_READ = 64


def _rules_of(facts: Any) -> _Rules:
    found = _read.get(id(facts))
    if found is not None and found[0] is facts:
        return found[1]
    if len(_read) >= _MOST_READ:
        _read.clear()
    rules = _rules_in(facts)
    _read[id(facts)] = (facts, rules)
    return rules


def _rules_in(facts: Any) -> _Rules:
    from .prefixes import CacheRules

    if facts is None:
        return _Rules(CacheRules(None, None, None, None), None, None)
    cache = facts.cache
    rules = CacheRules(
        automatic=_value(cache.automatic),
        minimum_tokens=_value(cache.minimum_tokens),
        block_tokens=_value(cache.block_tokens),
        lifetime_s=_value(cache.lifetime_s),
    )
    # Where OpenAI's own field is taken, it is that: another one may have other effects too, such as a name for the
    # conversation in a dashboard.
    name = _value(cache.key_field)
    if _value(facts.parameters.get(_USUAL_KEY_FIELD)) is True and name is not None:
        name = _USUAL_KEY_FIELD
    if name is not None and "." in name:
        name = None
    return _Rules(rules, name, _value(cache.requests_per_key_per_minute))


def _written(tools: Any) -> bytes | None:
    try:
        return orjson.dumps(tools)
    except (TypeError, ValueError, RecursionError):
        return None


def _volatile_at_the_end(placements: tuple[Any, ...]) -> int:
    return next((count for count, one in enumerate(reversed(placements)) if one != "volatile"), len(placements))


def _value(fact: Any) -> Any:
    return None if fact is None else fact.value
