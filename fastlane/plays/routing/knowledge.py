"""What routing has learned for one catalog: and what a call asks of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from fastlane.knowledge.prefixes import PrefixMemory
from fastlane.knowledge.sightings import Sighting, Upstream
from fastlane.knowledge.table import Table
from fastlane.protocol.endpoints import RESPONSES
from fastlane.providers import facts_named, facts_of
from fastlane.providers.facts import value_of
from fastlane.providers.output_facts import limit_in

from .adapting import ModelRules, demands_of
from .router import RouteQuery, Router

if TYPE_CHECKING:
    from fastlane.engine.call import Call
    from fastlane.providers import ProviderFacts
    from fastlane.records.record import CallRecord

    from .catalog.models import Catalog, CatalogModel
    from .catalog.route import Route
    from .section import RoutingSection

# Four characters of English to a token, in the JSON of a request, frames and all.
_TOKENS_PER_BYTE = 0.24
# The share of a repeated prompt that an upstream is expected to read from its cache, by whether its provider is known
# to keep prompts without being asked.
_CACHED_SHARE = {True: 0.9, None: 0.5, False: 0.05}
# How long an unknown provider keeps prompts: the shortest time of those that are known.
_USUAL_LIFETIME_S = 300.0
# In the order in which a provider reads them: what a longer conversation begins with comes first.
_FIELDS = ("tools", "functions", "response_format", "text", "instructions", "messages", "input", "prompt")


def json_of(value: Any) -> bytes:
    """Return a value as JSON; nothing for what JSON has no form for. Never raises."""
    try:
        return orjson.dumps(value, default=_plain)
    except Exception:  # noqa: BLE001 - surrogates, integers beyond 64 bits, keys that are no text
        return b""


def _plain(value: Any) -> Any:
    """Return what openai's own objects, and containers that JSON does not know, are made of."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(exclude_unset=True)
    return dict(value) if isinstance(value, Mapping) else None


class RoutingKnowledge:
    """Everything that routing has learned for one catalog. Threads and finalizers may share it."""

    def __init__(self, catalog: Catalog, *, exploration: float) -> None:
        self.catalog = catalog
        self.router = Router(catalog, exploration=exploration)
        self.latest_ns = 0
        """The latest moment at which anything was learned or asked: monotonic nanoseconds."""
        self._prefixes = PrefixMemory()
        self._responses: Table[int, Upstream] = Table("responses", max_entries=16_384)
        """Where responses and conversations were made, by hashes of their ids."""
        self._rules: dict[str, ModelRules] = {}

    def rules_of(self, model: CatalogModel, own: ProviderFacts) -> ModelRules:
        """Return what a model does with fields; `own` is what is known of the client's own provider."""
        if model.facts is not None:
            facts = facts_named(model.facts)
        else:
            facts = own if model.base_url is None else facts_of(self.router.states[model.name].upstream.origin)
        rules = self._rules.get(model.name)
        if rules is None or rules.facts is not facts:
            rules = self._rules[model.name] = ModelRules(model, facts)
        return rules

    def query(
        self,
        call: Call,
        route: Route,
        *,
        facts: ProviderFacts,
        missing_key: Callable[[CatalogModel], str | None] = lambda _: None,
        is_checked: bool = False,
    ) -> RouteQuery:
        """Return what a call asks. It leaves the call as it is, and never raises for what is in its body.

        `facts`: of the client's own provider; `missing_key`: why there is no key for a model; `is_checked`: whether
        answers are checked against their schema.
        """
        self.latest_ns = call.issued_ns
        body, endpoint, task = call.body, call.endpoint, route.task
        demands = demands_of(body, endpoint)
        body_bytes = len(call.written if call.written is not None else json_of(body))
        sizes = self.router.sizes
        tokens_per_byte = sizes(task).tokens_per_byte or sizes(None).tokens_per_byte or _TOKENS_PER_BYTE
        text_bytes = max(0, body_bytes - demands.attached_bytes)
        input_tokens = text_bytes * tokens_per_byte + demands.attached_tokens
        # Without what closes the list: a longer conversation goes on there.
        prompt = b"".join([json_of(body[field]) for field in _FIELDS if body.get(field) is not None])[:-1]
        blocks = self._prefixes.blocks(prompt)
        read_bytes = self._prefixes.expected(blocks, call.issued_ns)
        kept_at = self._kept_at(body) if endpoint == RESPONSES else None
        cached: dict[str, float] = {}
        unfit: dict[str, str] = {}
        for state in self.router.states.values():
            model, upstream = state.model, state.upstream
            rules = self.rules_of(model, facts)
            why = missing_key(model) or demands.unmet_by(rules, is_checked=is_checked)
            if why is None and kept_at is not None and (model.base_url, model.api_key_env) not in kept_at:
                why = "what the call continues is kept elsewhere"
            if why is not None:
                unfit[model.name] = why
                continue
            if upstream in read_bytes:
                tokens = input_tokens * min(1.0, read_bytes[upstream] / max(1, body_bytes))
                cache = rules.facts.cache if rules.facts is not None else None
                if cache is None or tokens >= (value_of(cache.minimum_tokens) or 0):
                    automatic = None if cache is None else value_of(cache.automatic)
                    cached[model.name] = tokens * _CACHED_SHARE.get(automatic, _CACHED_SHARE[None])
        quality, rate = route.min_quality, route.min_pass_rate
        if task is not None and (usual := self.catalog.tasks.get(task)) is not None:
            quality = usual.min_quality if quality is None else quality
            rate = usual.min_pass_rate if rate is None else rate
        return RouteQuery(
            task=task,
            kind=task or demands.wanted.name,
            min_quality=quality,
            min_pass_rate=rate,
            quantile=0.5 if route.quantile is None else route.quantile,
            endpoint=endpoint,
            needs=demands.needs,
            body_bytes=body_bytes,
            input_tokens=input_tokens,
            max_output_tokens=limit_in(body, endpoint),
            cached_tokens=cached,
            unfit=unfit,
            blocks=blocks,
        )

    def note(self, sighting: Sighting, now_ns: int) -> None:
        """Learn from one attempt."""
        self.latest_ns = now_ns
        self.router.note(sighting, now_ns)

    def note_read(self, query: RouteQuery, model: CatalogModel, own: ProviderFacts, now_ns: int) -> None:
        """Take note that a model has begun to answer a call, and so has read its prompt."""
        facts = self.rules_of(model, own).facts
        lifetime_s = value_of(facts.cache.lifetime_s) if facts is not None else None
        upstream = self.router.states[model.name].upstream
        self._prefixes.note(query.blocks, upstream, now_ns, float(lifetime_s or _USUAL_LIFETIME_S))

    def note_response(self, response_id: str, upstream: Upstream) -> None:
        """Take note of where a response or a conversation was made: only there can a call continue it."""
        self._responses.put(hash(response_id), upstream)

    def _kept_at(self, body: Mapping[str, Any]) -> set[tuple[str | None, str | None]] | None:
        """Return where all is kept that a call continues: base URLs and names of keys. None if it continues nothing.

        What no call of ours has made is at the client's own provider.
        """
        conversation = body.get("conversation")
        if isinstance(conversation, Mapping):
            conversation = conversation.get("id")
        found: set[tuple[str | None, str | None]] | None = None
        for one in (body.get("previous_response_id"), conversation):
            if one is None:
                continue
            made_at = self._responses.get(hash(one)) if isinstance(one, str) else None
            accounts = {
                (state.model.base_url, state.model.api_key_env)
                for state in self.router.states.values()
                if (state.upstream == made_at if made_at is not None else state.model.base_url is None)
            }
            found = accounts if found is None else found & accounts
        return found

    def learn(self, record: CallRecord, section: RoutingSection, query: RouteQuery) -> None:
        """Learn from a call that is over; what its failed attempts have shown was learned when they failed."""
        last, state = record.last_attempt, self.router.states.get(section.model or "")
        if state is None or last is None or last.origin is None or last.model is None:
            return
        upstream, timeline, usage = state.upstream, record.timeline, record.usage
        if record.response_id is not None and record.endpoint == "/responses":
            self.note_response(record.response_id, upstream)
        # Estimates of a stream that was stopped are good enough for lengths and rates, and wrong for the prompt.
        input_tokens = None if usage.estimated else usage.input_tokens
        expected = query.cached_tokens.get(state.name, 0.0)
        cached = expected if usage.cached_tokens is None else usage.cached_tokens
        sent_ns = last.wire.send_started_ns or last.wire.started_ns
        first_s = whole_s = decode_s = None
        output = usage.output_tokens if usage.estimated else record.streamed_output_tokens
        if timeline.first_token_ns is not None:
            first_s = max((timeline.first_token_ns - sent_ns) / 1e9, 1e-4)
            if output is None:
                # They were not counted. An event is about a token, and length and rate are then off by the same.
                output = len(timeline.token_ns)
            if len(timeline.token_ns) > 1:
                decode_s = (timeline.token_ns[-1] - timeline.first_token_ns) / 1e9
        elif record.outcome == "completed":
            whole_s = max(((timeline.answer_ended_ns or timeline.ended_ns) - sent_ns) / 1e9, 1e-4)
        is_complete = record.outcome == "completed"
        sighting = Sighting(
            model=upstream.model,
            origin=upstream.origin,
            task=query.kind,
            uncached_tokens=max(0.0, (query.input_tokens if input_tokens is None else input_tokens) - cached),
            body_bytes=query.body_bytes,
            input_tokens=input_tokens,
            first_token_s=first_s,
            output_tokens=output if is_complete else None,
            decode_s=decode_s if is_complete else None,
            whole_s=whole_s,
        )
        self.note(sighting, timeline.ended_ns)
