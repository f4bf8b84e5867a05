"""What one call asks of the model that is to answer it, put together from the call and from what was learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, log2
from typing import TYPE_CHECKING, Any

from fastlane.knowledge.prefixes import PrefixMemory
from fastlane.knowledge.sightings import Sighting, Upstream
from fastlane.knowledge.table import Table
from fastlane.protocol.endpoints import RESPONSES
from fastlane.providers.output_facts import limit_in

from .demands import demands_of
from .model_rules import ModelRules
from .prompt import prompt_size
from .router import NetworkPath, RouteQuery, Router

if TYPE_CHECKING:
    from fastlane.engine.call import Call
    from fastlane.providers import ProviderFacts
    from fastlane.transport.pool.pool import ConnectionForecast

    from .catalog.models import Catalog, CatalogModel
    from .catalog.route import Route

# Four characters of English to a token, in the JSON of a request, frames and all.
_TOKENS_PER_BYTE = 0.24
# The share of a prompt that an upstream is expected to have in its cache of what it has read, before it was seen: by
# whether its provider is known to keep prompts unasked.
_FIRST_SHARE = {True: 0.9, None: 0.5, False: 0.05}
_LEAST_SHARE, _SHARE_WEIGHT = 0.02, 0.2
# For how long a provider keeps prompts that does not say it: the shortest time of those that do.
_USUAL_LIFETIME_S = 300.0
# Smaller bodies are sent as they are, as `RequestEncoding` has it.
_LEAST_ENCODED_BYTES = 11_000
# TCP takes one round trip before anything may be sent, and TLS 1.3 one more (RFC 9293, 3.5; RFC 8446, 2).
_ROUND_TRIP_S = 0.05
_SEGMENTS, _SEGMENT_BYTES = 10, 1_448
_LEAST_RATE = 1_000.0


class RouteQueries:
    """Makes queries of calls. Threads and finalizers may share it."""

    def __init__(self, catalog: Catalog, router: Router) -> None:
        self._catalog = catalog
        self._router = router
        self._prefixes = PrefixMemory()
        self._responses: Table[int, Upstream] = Table("responses", max_entries=16_384)
        """Where responses and conversations were made, by hashes of their ids."""
        self._cached_shares: Table[Upstream, float] = Table("shares of caches", max_entries=1_024)
        self._rules: dict[str, ModelRules] = {}

    def rules_of(self, model: CatalogModel, own: ProviderFacts) -> ModelRules:
        """Return what a model does with fields; `own` is what is known of the client's own provider."""
        from fastlane.providers import facts_named, facts_of

        if model.facts is not None:
            facts = facts_named(model.facts)
        else:
            facts = own if model.base_url is None else facts_of(self._router.states[model.name].upstream.origin)
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
        forecast: Callable[[CatalogModel], ConnectionForecast],
        missing_key: Callable[[CatalogModel], str | None] = lambda _: None,
        encoded_share: Callable[[str], float | None] | None = None,
        is_checked: bool = False,
    ) -> RouteQuery:
        """Return what a call asks. It leaves the call as it is, and never raises for what is in its body.

        `facts`: of the client's own provider; `forecast`: what is known of the connection to a model; `missing_key`:
        why there is no key for it; `encoded_share`: the share of its bytes that encoding leaves of a body for an
        origin; `is_checked`: whether answers are checked against their schema.
        """
        body, endpoint, task = call.body, call.endpoint, route.task
        demands = demands_of(body, endpoint)
        size = prompt_size(body, call.written)
        sizes = self._router.sizes
        tokens_per_byte = sizes(task).tokens_per_byte or sizes(None).tokens_per_byte or _TOKENS_PER_BYTE
        input_tokens = size.text_bytes * tokens_per_byte + size.other_tokens
        blocks = self._prefixes.blocks(size.prompt)
        read_bytes = self._prefixes.expected(blocks, call.issued_ns)
        kept_at = self._kept_at(body) if endpoint == RESPONSES else None
        cached: dict[Upstream, float] = {}
        paths: dict[str, NetworkPath] = {}
        unfit: dict[str, str] = {}
        for state in self._router.states.values():
            model, upstream = state.model, state.upstream
            rules = self.rules_of(model, facts)
            why = missing_key(model) or demands.unmet_by(rules, is_checked=is_checked)
            if why is None and kept_at is not None and (model.base_url, model.api_key_env) not in kept_at:
                why = "what the call continues is kept elsewhere"
            if why is not None:
                unfit[model.name] = why
                continue
            if upstream in read_bytes:
                tokens = read_bytes[upstream] * tokens_per_byte
                cache = rules.facts.cache if rules.facts is not None else None
                if cache is None or tokens >= (_value(cache.minimum_tokens) or 0):
                    cached[upstream] = min(tokens * self._cached_share(upstream, cache), input_tokens)
            if upstream.origin not in paths:
                origin = upstream.origin or call.origin
                sent_bytes: float = size.body_bytes
                if encoded_share and sent_bytes >= _LEAST_ENCODED_BYTES and _takes_gzip(rules.facts, endpoint):
                    sent_bytes *= min(1.0, encoded_share(origin) or 1.0)
                paths[upstream.origin] = network_path(forecast(model), sent_bytes, tls=not origin.startswith("http:"))
        quality, rate = route.min_quality, route.min_pass_rate
        if task is not None and (usual := self._catalog.tasks.get(task)) is not None:
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
            body_bytes=size.body_bytes,
            input_tokens=input_tokens,
            max_output_tokens=limit_in(body, endpoint),
            cached_tokens=cached,
            paths=paths,
            unfit=unfit,
            blocks=blocks,
        )

    def note(self, sighting: Sighting) -> None:
        """Learn from one attempt what prompts come to in tokens, and how much of them its upstream keeps."""
        for task in {None, sighting.task}:
            self._router.sizes(task).learn(body_bytes=sighting.body_bytes, input_tokens=sighting.input_tokens)
        expected, cached = sighting.expected_cached_tokens, sighting.cached_tokens
        if not expected or cached is None or cached < 0:
            return

        def change(known: float | None) -> float:
            share = _FIRST_SHARE[True] if known is None else known
            # What was expected had the share in it already.
            seen = min(1.0, share * cached / expected)
            return max(_LEAST_SHARE, share + _SHARE_WEIGHT * (seen - share))

        self._cached_shares.update(Upstream(sighting.model, sighting.origin), change)

    def note_read(self, query: RouteQuery, model: CatalogModel, own: ProviderFacts, now_ns: int) -> None:
        """Take note that a model has begun to answer a call, and so has read its prompt."""
        facts = self.rules_of(model, own).facts
        lifetime_s = _value(facts.cache.lifetime_s) if facts is not None else None
        upstream = self._router.states[model.name].upstream
        self._prefixes.note(query.blocks, upstream, now_ns, float(lifetime_s or _USUAL_LIFETIME_S))

    def note_response(self, response_id: str, upstream: Upstream) -> None:
        """Take note of where a response or a conversation was made: only there can a call continue it."""
        self._responses.put(hash(response_id), upstream)

    def _cached_share(self, upstream: Upstream, cache: Any) -> float:
        automatic = _value(cache.automatic) if cache is not None else None
        first = _FIRST_SHARE[automatic if isinstance(automatic, bool) else None]
        return self._cached_shares.fetch(upstream, lambda: first)

    def _kept_at(self, body: Mapping[str, Any]) -> set[tuple[str | None, str | None]] | None:
        """Return where all is kept that a call continues: base URLs and names of keys. None where it continues nothing.

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
                for state in self._router.states.values()
                if (state.upstream == made_at if made_at is not None else state.model.base_url is None)
            }
            found = accounts if found is None else found & accounts
        return found


def network_path(forecast: ConnectionForecast, body_bytes: float, *, tls: bool = True) -> NetworkPath:
    """Return what lies between this process and an origin, for a body of so many bytes.

    Where no connection is open, it takes a round trip for TCP and one for TLS. The body leaves in rounds, of which
    each is twice as large as the one before (RFC 5681), as the peer's windows and the link allow.
    """
    measured_ns = forecast.round_trip_time_ns
    round_trip_s = _ROUND_TRIP_S if measured_ns is None else max(0, measured_ns) / 1e9
    if not forecast.is_open:
        rounds = ceil(log2(1.0 + body_bytes / (_SEGMENTS * _SEGMENT_BYTES)))
        return NetworkPath(round_trip_s * (1 + tls), round_trip_s * (0.5 + max(0, rounds - 1)))
    segments = max(1, (forecast.congestion_window or _SEGMENTS) - (forecast.in_flight_segments or 0))
    rounds = ceil(log2(1.0 + body_bytes / (segments * (forecast.segment_bytes or _SEGMENT_BYTES))))
    if forecast.http_version != "HTTP/1.1":
        windows = [forecast.peer_stream_window, forecast.peer_connection_window]
        window = max(_SEGMENT_BYTES, min((one for one in windows if one is not None), default=1 << 62))
        rounds = max(rounds, ceil(body_bytes / window))
    upload_s = round_trip_s * (0.5 + max(0, rounds - 1))
    rate = forecast.delivery_rate_bytes_per_s
    if rate is not None and rate >= _LEAST_RATE:
        upload_s = max(upload_s, body_bytes / rate)
    return NetworkPath(0.0, upload_s)


def _takes_gzip(facts: Any, endpoint: str) -> bool:
    return facts is not None and "json+gzip" in (facts.forms(endpoint) or ())


def _value(fact: Any) -> Any:
    return None if fact is None else fact.value
