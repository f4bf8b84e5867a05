"""What one call asks of the model that is to answer it, from the call and from what was learned."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import ceil, log2
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from fastlane.knowledge.prefixes import PrefixMemory
from fastlane.knowledge.sightings import Sighting, Upstream
from fastlane.knowledge.table import Table
from fastlane.knowledge.tokens import Counter
from fastlane.protocol.endpoints import RESPONSES
from fastlane.providers import facts_named, facts_of
from fastlane.providers.output_facts import limit_in

from .adapting import ModelRules, demands_of
from .router import NetworkPath, RouteQuery, Router

if TYPE_CHECKING:
    from fastlane.engine.call import Call
    from fastlane.providers import ProviderFacts
    from fastlane.transport.pool.pool import ConnectionForecast

    from .catalog.models import Catalog, CatalogModel
    from .catalog.route import Route

# Four characters of English to a token, in the JSON of a request, frames and all.
_TOKENS_PER_BYTE = 0.24
# The share of a repeated prompt that an upstream is expected to read from its cache, before any was counted: by
# whether its provider is known to keep prompts without being asked.
_FIRST_SHARE = {True: 0.9, None: 0.5, False: 0.05}
_LEAST_SHARE, _SHARE_WEIGHT = 0.02, 0.2
# How long an unknown provider keeps prompts: the shortest time of those that are known.
_USUAL_LIFETIME_S = 300.0
# TCP takes one round trip before anything may be sent, and TLS 1.3 one more (RFC 9293, 3.5; RFC 8446, 2).
_ROUND_TRIP_S = 0.05
_SEGMENTS, _SEGMENT_BYTES = 10, 1_448
# In the order in which a provider reads them: what a longer conversation begins with comes first.
_FIELDS = ("tools", "functions", "response_format", "text", "instructions", "messages", "input", "prompt")
# Tuples, because what stands under "type" may be anything, hashable or not.
_FILES = ("file", "input_file")
_ATTACHMENTS = ("image_url", "input_image", "image", "input_audio", *_FILES)
# Base64 of a page of a PDF, which is some 1,500 tokens with its picture, takes 50 to 100 kB.
_FILE_CHARACTERS = 50
# Shorter ones are addresses, and do not weigh.
_LONG = 512
_FILLER_BYTES_PER_TOKEN = 4
_MAX_DEPTH = 6
_counter = Counter(None, None)


class PromptSize(NamedTuple):
    """The sizes of one request."""

    prompt: bytes
    """What the provider reads, as JSON, with a filler of as many tokens in place of each picture, sound and file."""
    body_bytes: int
    """Of the whole request as JSON."""
    text_bytes: int
    """Of them, those that are no picture, sound or file."""
    attached_tokens: float
    """Tokens of pictures, sounds and files, estimated."""


def prompt_size(body: Mapping[str, Any], written: bytes | None) -> PromptSize:
    """Return the sizes of a request; `written` is its JSON, if it has been written already.

    Never raises: what cannot be written as JSON counts nothing. About 10 us for 100 kB.
    """
    body_bytes = len(written if written is not None else _json_of(body))
    pieces: list[bytes] = []
    attached: list[tuple[int, float]] = []
    for field in _FIELDS:
        value = body.get(field)
        if value is None:
            continue
        if isinstance(value, list | tuple) and value and type(value[0]) is int:  # ids of tokens
            attached.append((len(_json_of(value)), float(len(value))))
        else:
            pieces.append(_json_of(_without_attachments(value, attached)))
    # Without what closes the list: a longer conversation goes on there.
    prompt = b"".join(pieces)[:-1]
    text_bytes = body_bytes - sum(size for size, _ in attached)
    return PromptSize(prompt, body_bytes, max(0, text_bytes), sum(tokens for _, tokens in attached))


def _json_of(value: Any) -> bytes:
    """Return a value as JSON; nothing for what JSON has no form for."""
    try:
        return orjson.dumps(value, default=_plain)
    except Exception:  # noqa: BLE001 - surrogates, integers beyond 64 bits, keys that are no text
        try:
            return json.dumps(value, default=_plain, ensure_ascii=False).encode("utf-8", "surrogatepass")
        except Exception:  # noqa: BLE001 - what contains itself
            return b""


def _plain(value: Any) -> Any:
    """Return what openai's own objects, and containers that JSON does not know, are made of."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(exclude_unset=True)
    return dict(value) if isinstance(value, Mapping) else None


def _without_attachments(value: Any, found: list[tuple[int, float]], depth: int = 0) -> Any:
    """Return messages, items or parts without attachments, whose bytes and tokens are added to `found`."""
    if isinstance(value, list | tuple) and depth <= _MAX_DEPTH:
        return [one if type(one) is str else _without_attachments(one, found, depth + 1) for one in value]
    if not isinstance(value, Mapping):
        return value
    kind = value.get("type")
    if kind in _ATTACHMENTS:
        data = _longest_text(value)
        tokens = len(data) / _FILE_CHARACTERS if kind in _FILES else float(_counter.message(value))
        found.append((len(data), tokens))
        if len(data) < _LONG:
            return value
        filler = f"{hash(data):x} "
        return {"type": kind, "data": filler * (1 + int(tokens * _FILLER_BYTES_PER_TOKEN / len(filler)))}
    for field in ("content", "output"):
        if isinstance(value.get(field), list | tuple):
            value = {**value, field: _without_attachments(value[field], found, depth + 1)}
    return value


def _longest_text(part: Mapping[str, Any]) -> str:
    values = [one for value in part.values() for one in (value.values() if isinstance(value, Mapping) else (value,))]
    return max((one for one in values if isinstance(one, str)), key=len, default="")


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
        is_checked: bool = False,
    ) -> RouteQuery:
        """Return what a call asks. It leaves the call as it is, and never raises for what is in its body.

        `facts`: of the client's own provider; `forecast`: what is known of the connection to a model; `missing_key`:
        why there is no key for it; `is_checked`: whether answers are checked against their schema.
        """
        body, endpoint, task = call.body, call.endpoint, route.task
        demands = demands_of(body, endpoint)
        size = prompt_size(body, call.written)
        sizes = self._router.sizes
        tokens_per_byte = sizes(task).tokens_per_byte or sizes(None).tokens_per_byte or _TOKENS_PER_BYTE
        input_tokens = size.text_bytes * tokens_per_byte + size.attached_tokens
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
                paths[upstream.origin] = network_path(
                    forecast(model), size.body_bytes, tls=not origin.startswith("http:")
                )
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


def network_path(forecast: ConnectionForecast, body_bytes: int, *, tls: bool = True) -> NetworkPath:
    """Return what lies between this process and an origin, for a body of so many bytes.

    Where no connection is open, it takes a round trip for TCP and one for TLS. The body leaves in rounds, of which
    each is twice as large as the one before (RFC 5681).
    """
    measured_ns = forecast.round_trip_time_ns
    round_trip_s = _ROUND_TRIP_S if measured_ns is None else max(0, measured_ns) / 1e9
    window = _SEGMENTS
    if forecast.is_open:
        window = max(1, (forecast.congestion_window or _SEGMENTS) - (forecast.in_flight_segments or 0))
    rounds = ceil(log2(1.0 + body_bytes / (window * (forecast.segment_bytes or _SEGMENT_BYTES))))
    connect_s = 0.0 if forecast.is_open else round_trip_s * (1 + tls)
    return NetworkPath(connect_s, round_trip_s * (0.5 + max(0, rounds - 1)))


def _value(fact: Any) -> Any:
    return None if fact is None else fact.value
