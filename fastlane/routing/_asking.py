"""What one call asks of the model that is to answer it, put together from the call and from what was learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..outputs._ceiling import limit_in
from ..prediction._prefix_memory import PrefixMemory
from ..prediction._upstream import Upstream
from ._learned_sizes import LearnedSizes
from ._likely_output import likely_output
from ._prompt_read import prompt_read
from ._question import Question, Way
from ._responses_made import ResponsesMade, chained_to
from ._ways import way_of

if TYPE_CHECKING:
    from .._call import Call
    from ..catalog._models import Catalog, CatalogModel
    from ..catalog._route import Route
    from ..prediction._sighting import Sighting
    from ..providers import ProviderFacts
    from ..transport._outlook import Outlook

# What a provider that says nothing of it keeps prompts for, in seconds: the shortest of those that do say it.
_USUAL_LIFETIME_S = 300.0
# Bodies below this are sent as they are: as `Encoding` has it.
_LEAST_ENCODED_BYTES = 11_000
_MOST_ASKED = 1_024
_ATTACHED = frozenset({"vision", "audio"})
_GZIP = "json+gzip"


class Asking:
    """Makes questions of calls. Threads may share it: nothing in it is ever half done."""

    def __init__(self) -> None:
        self.prefixes = PrefixMemory()
        self._sizes = LearnedSizes()
        self._made = ResponsesMade()
        self._asked: dict[str, tuple[int, ...]] = {}

    def question(
        self,
        call: Call,
        route: Route,
        catalog: Catalog,
        *,
        siblings_outlook: Callable[[CatalogModel], Outlook],
        facts_of: Callable[[CatalogModel], ProviderFacts],
        now_ns: int,
        encoded_share: Callable[[str], float | None] | None = None,
    ) -> Question:
        """Return what a call asks. It does not change the call, and never raises for anything in its body.

        `siblings_outlook` tells of the connection to a model's origin, and `facts_of` what is known of its provider.
        `encoded_share` is the share of its bytes that gzip leaves of a body for an origin; None where bodies are not
        encoded.
        """
        from ._abilities import needs_of, unfit

        body, endpoint = call.body, call.endpoint
        needs = needs_of(body, endpoint)
        read = prompt_read(body, call.written, attached=not needs.isdisjoint(_ATTACHED))
        task = route.task
        tokens_per_byte = self._sizes.tokens_per_byte(task)
        input_tokens = read.text_bytes * tokens_per_byte + read.other_tokens
        blocks = self.prefixes.blocks(read.prompt)
        self._remember(call.call_id, blocks)
        beginnings = self.prefixes.expected(blocks, now_ns)
        cached: dict[Upstream, float] = {}
        ways: dict[str, Way] = {}
        not_fit: dict[str, str] = {}
        chained = chained_to(body, endpoint)
        accounts = None if chained is None else self._accounts(chained, catalog)
        for model in catalog.models:
            facts = facts_of(model)
            why = unfit(body, endpoint, model, facts)
            if why is None and accounts is not None and (model.base_url, model.api_key_env) not in accounts:
                why = "what the call goes on from is kept elsewhere"
            if why is not None:
                not_fit[model.name] = why
                continue
            origin = catalog.origin_of(model)
            upstream = Upstream(model.model, origin)
            known_bytes = beginnings.get(upstream)
            if known_bytes:
                tokens = self._cached(upstream, known_bytes * tokens_per_byte, facts)
                if tokens > 0:
                    cached[upstream] = min(tokens, input_tokens)
            if origin not in ways:
                ratio = None
                if (
                    encoded_share is not None
                    and read.body_bytes >= _LEAST_ENCODED_BYTES
                    and _takes_gzip(facts, endpoint)
                ):
                    ratio = encoded_share(origin)
                tls = not (model.base_url or "").startswith("http:")
                ways[origin] = way_of(siblings_outlook(model), read.body_bytes, encoded_ratio=ratio, tls=tls)
        asks = catalog.tasks.get(task) if task is not None else None
        return Question(
            task=task,
            quality_bar=asks.quality_bar if route.quality_bar is None and asks is not None else route.quality_bar,
            pass_rate=asks.pass_rate if route.pass_rate is None and asks is not None else route.pass_rate,
            quantile=route.quantile if route.quantile is not None else 0.5,
            endpoint=endpoint,
            needs=needs,
            body_bytes=read.body_bytes,
            input_tokens=input_tokens,
            output_tokens=likely_output(body, endpoint, task),
            most_output_tokens=limit_in(body, endpoint),
            cached_tokens=cached,
            ways=ways,
            unfit=not_fit,
        )

    def note(self, sighting: Sighting) -> None:
        """Learn from one attempt what prompts come to in tokens, and how much an upstream keeps of them."""
        self._sizes.note(sighting)

    def note_read(self, call_id: str, upstream: Upstream, facts: ProviderFacts | None, now_ns: int) -> None:
        """Take note that an upstream has answered a call, and so has read its prompt."""
        blocks = self._asked.get(call_id)
        if blocks:
            self.prefixes.note(blocks, upstream, now_ns, _lifetime_s(facts))

    def note_response(self, response_id: str, upstream: Upstream) -> None:
        """Take note of where a response was made (or a conversation): only there can it be gone on from."""
        self._made.note(response_id, upstream)

    def _remember(self, call_id: str, blocks: tuple[int, ...]) -> None:
        self._asked[call_id] = blocks
        if len(self._asked) > _MOST_ASKED:
            for oldest in list(self._asked)[: _MOST_ASKED // 2]:
                self._asked.pop(oldest, None)

    def _cached(self, upstream: Upstream, tokens: float, facts: Any) -> float:
        """Tokens that an upstream is expected to have in its cache, of those that it has read."""
        cache = facts.cache if facts is not None else None
        automatic = _value(cache.automatic) if cache is not None else None
        least = _value(cache.minimum_tokens) if cache is not None else None
        if tokens < (least or 0):
            return 0.0
        return tokens * self._sizes.cached_share(upstream, automatic)

    def _accounts(self, chained: tuple[str, ...], catalog: Catalog) -> set[tuple[str | None, str | None]]:
        """Base URLs, each with the name of its key, at which all that a call goes on from is kept."""
        places = {self._made.of(one) for one in chained}
        if len(places) == 1 and (place := next(iter(places))) is not None:
            return {
                (model.base_url, model.api_key_env)
                for model in catalog.models
                if Upstream(model.model, catalog.origin_of(model)) == place
            }
        if places == {None}:
            return {(model.base_url, model.api_key_env) for model in catalog.models if model.base_url is None}
        return set()


def _lifetime_s(facts: Any) -> float:
    lifetime_s = _value(facts.cache.lifetime_s) if facts is not None else None
    return _USUAL_LIFETIME_S if lifetime_s is None else float(lifetime_s)


def _takes_gzip(facts: Any, endpoint: str) -> bool:
    return facts is not None and _GZIP in (facts.forms(endpoint) or ())


def _value(fact: Any) -> Any:
    return None if fact is None else fact.value
