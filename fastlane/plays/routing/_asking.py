"""What one call asks of the model that is to answer it, put together from the call and from what was learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from fastlane.knowledge.prediction._prefix_memory import PrefixMemory
from fastlane.knowledge.prediction._upstream import Upstream
from fastlane.knowledge.table import Table
from fastlane.providers.output_facts import limit_in

from ._abilities import demands_of
from ._learned_sizes import LearnedSizes
from ._likely_output import likely_output
from ._prompt_read import prompt_read
from ._question import Question, Way
from ._responses_made import ResponsesMade, chained_to
from ._ways import way_of

if TYPE_CHECKING:
    from fastlane.engine.call import Call
    from fastlane.knowledge.prediction._sighting import Sighting
    from fastlane.providers import ProviderFacts
    from fastlane.transport.pool.pool import ConnectionForecast

    from .catalog.models import Catalog, CatalogModel
    from .catalog.route import Route

# What a provider that says nothing of it keeps prompts for: the shortest time of those that do say it.
_USUAL_LIFETIME_S = 300.0
# Smaller bodies are sent as they are, as `RequestEncoding` has it.
_LEAST_ENCODED_BYTES = 11_000
# To look up what is known of a provider takes a microsecond, and there are several of them in every call.
_FACTS_HOLD_NS = 1_000_000_000
_ELSEWHERE = "what the call goes on from is kept elsewhere"

Account = tuple[str | None, str | None]
"""A base URL, and the name of the key there: what is kept of one account, no other sees."""


_ToldBy = tuple[str, str | None]


class _Row(NamedTuple):
    """What is the same for all calls."""

    model: CatalogModel
    upstream: Upstream
    account: Account
    told_by: _ToldBy | None
    """By what its provider's facts are found; None where that depends on who asks."""


class Asking:
    """Makes questions of calls. Threads and finalisers may share it: nothing in it is ever seen half done."""

    def __init__(self) -> None:
        self.prefixes = PrefixMemory()
        self._sizes = LearnedSizes()
        self._made = ResponsesMade()
        # Of a call that is dropped before it is answered, nothing is learned.
        self._asked: Table[str, tuple[int, ...]] = Table("routed calls", max_entries=1_024)
        self._facts: tuple[int, dict[_ToldBy, ProviderFacts]] = (0, {})
        self._rows: tuple[Catalog | None, tuple[_Row, ...]] = (None, ())

    def question(
        self,
        call: Call,
        route: Route,
        catalog: Catalog,
        *,
        siblings_outlook: Callable[[CatalogModel], ConnectionForecast],
        facts_of: Callable[[CatalogModel], ProviderFacts],
        now_ns: int,
        encoded_share: Callable[[str], float | None] | None = None,
        is_checked: bool = False,
    ) -> Question:
        """Return what a call asks. It leaves the call as it is, and never raises for what is in its body.

        `siblings_outlook` tells of the connection to a model's origin, and is asked once for each origin; `facts_of`
        tells what is known of its provider: of any but the application's own, it is asked once in a second.
        `encoded_share` is the share of its bytes that gzip leaves of a body for an origin, where the client encodes
        bodies: asked only where the provider is known to take them.
        """
        body, endpoint, task = call.body, call.endpoint, route.task
        demands = demands_of(body, endpoint)
        read = prompt_read(body, call.written)
        tokens_per_byte = self._sizes.tokens_per_byte(task)
        input_tokens = read.text_bytes * tokens_per_byte + read.other_tokens
        blocks = self.prefixes.blocks(read.prompt)
        self._asked.put(call.call_id, blocks)
        beginnings = self.prefixes.expected(blocks, now_ns)
        rows = self._rows_of(catalog)
        chained = chained_to(body, endpoint)
        accounts = None if chained is None else self._accounts(chained, rows)
        known = self._facts_at(now_ns)
        cached: dict[Upstream, float] = {}
        ways: dict[str, Way] = {}
        unfit: dict[str, str] = {}
        for model, upstream, account, told_by in rows:
            facts = facts_of(model) if told_by is None else known.get(told_by)
            if facts is None:
                facts = facts_of(model)
                if told_by is not None:
                    known[told_by] = facts
            why = demands.unmet_by(model, facts, is_checked=is_checked)
            if why is None and accounts is not None and account not in accounts:
                why = _ELSEWHERE
            if why is not None:
                unfit[model.name] = why
                continue
            if upstream in beginnings:
                tokens = beginnings[upstream] * tokens_per_byte
                automatic, least = _keeping(facts)
                if tokens >= least:
                    share = self._sizes.cached_share(upstream, automatic)
                    cached[upstream] = min(tokens * share, input_tokens)
            origin = upstream.origin
            if origin not in ways:
                place = origin or call.origin
                encodes = encoded_share is not None and read.body_bytes >= _LEAST_ENCODED_BYTES
                ratio = encoded_share(place) if encoded_share and encodes and _takes_gzip(facts, endpoint) else None
                tls = not place.startswith("http:")
                ways[origin] = way_of(siblings_outlook(model), read.body_bytes, encoded_ratio=ratio, tls=tls)
        min_quality, min_pass_rate = route.min_quality, route.min_pass_rate
        if task is not None and (usual := catalog.tasks.get(task)) is not None:
            min_quality = usual.min_quality if min_quality is None else min_quality
            min_pass_rate = usual.min_pass_rate if min_pass_rate is None else min_pass_rate
        return Question(
            task=task,
            min_quality=min_quality,
            min_pass_rate=min_pass_rate,
            quantile=0.5 if route.quantile is None else route.quantile,
            endpoint=endpoint,
            needs=demands.needs,
            body_bytes=read.body_bytes,
            input_tokens=input_tokens,
            output_tokens=likely_output(body, endpoint, task),
            max_output_tokens=limit_in(body, endpoint),
            cached_tokens=cached,
            ways=ways,
            unfit=unfit,
        )

    def note(self, sighting: Sighting) -> None:
        """Learn from one attempt what prompts come to in tokens, and how much of them its upstream keeps."""
        self._sizes.note(sighting)

    def note_read(self, call_id: str, upstream: Upstream, facts: ProviderFacts | None, now_ns: int) -> None:
        """Take note that an upstream has begun to answer a call, and so has read its prompt."""
        blocks = self._asked.get(call_id)
        if blocks:
            self.prefixes.note(blocks, upstream, now_ns, _lifetime_s(facts))

    def note_response(self, response_id: str, upstream: Upstream) -> None:
        """Take note of where a response was made, or a conversation: only there can a call go on from it."""
        self._made.note(response_id, upstream)

    def _facts_at(self, now_ns: int) -> dict[_ToldBy, ProviderFacts]:
        """What was found out within the last second of other providers than the application's own."""
        until_ns, found = self._facts
        if not until_ns - _FACTS_HOLD_NS <= now_ns < until_ns:
            found = {}
            self._facts = (now_ns + _FACTS_HOLD_NS, found)
        return found

    def _rows_of(self, catalog: Catalog) -> tuple[_Row, ...]:
        of, rows = self._rows
        if of is not catalog:
            rows = tuple(
                _Row(
                    model,
                    Upstream(model.model, catalog.origin_of(model)),
                    (model.base_url, model.api_key_env),
                    None if model.base_url is None else (model.base_url, model.facts),
                )
                for model in catalog.models
            )
            self._rows = (catalog, rows)
        return rows

    def _accounts(self, chained: tuple[str, ...], rows: tuple[_Row, ...]) -> set[Account]:
        """Where all is kept that a call goes on from: what nobody has seen made is the application's own."""
        found: set[Account] | None = None
        for one in chained:
            place = self._made.of(one)
            here = {row.account for row in rows if (row.upstream == place if place else row.model.base_url is None)}
            found = here if found is None else found & here
        return found or set()


def _keeping(facts: Any) -> tuple[bool | None, int]:
    """Whether a provider keeps prompts unasked, None where nobody knows, and from how many tokens on."""
    cache = facts.cache if facts is not None else None
    return (None, 0) if cache is None else (_value(cache.automatic), _value(cache.minimum_tokens) or 0)


def _lifetime_s(facts: Any) -> float:
    lifetime_s = _value(facts.cache.lifetime_s) if facts is not None else None
    return _USUAL_LIFETIME_S if lifetime_s is None else float(lifetime_s)


def _takes_gzip(facts: Any, endpoint: str) -> bool:
    return facts is not None and "json+gzip" in (facts.forms(endpoint) or ())


def _value(fact: Any) -> Any:
    return None if fact is None else fact.value
