"""What a way of a call is made of: the client of its upstream, and the call's options as that takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastlane.compat.call_options import changed_options
from fastlane.plays import BoundedOutput
from fastlane.plays.routing._adapting import Adapted, adapted
from fastlane.plays.routing.upstreams import Upstreams

from ..refused_fields import refusals
from ..upstreams._headers import options_for

if TYPE_CHECKING:
    from fastlane.plays.routing._plan import RoutePlan
    from fastlane.plays.routing.catalog._models import CatalogModel

    from ..call import Call


def upstreams_of(client: Any, endpoint: str) -> Upstreams:
    """What is known of the upstreams that a client's call may go to."""
    shell = client._fastlane
    siblings, pipeline = shell.siblings, shell.pipeline
    encoded_share = None
    if pipeline.compresses_bodies:
        from fastlane.plays.request_encoding._shares import shares
        from fastlane.plays.request_encoding._verdicts import Key

        def encoded_share(origin: str) -> float:
            # (What is sent below another path than the usual one has shares of its own: the first guess does.)
            return shares.expected(Key(origin, f"/v1{endpoint}", "json+gzip"))

    return Upstreams(
        outlook=lambda model: siblings.outlook(model, asynchronous=client._asynchronous, client=client),
        missing_key=siblings.missing_key,
        encoded_share=encoded_share,
        is_checked=any(isinstance(play, BoundedOutput) and play.validate for play in pipeline.plays),
    )


def client_for(client: Any, model: CatalogModel | None) -> Any | None:
    """The client that a model is called with; None where its key cannot be had."""
    return client if model is None else client._fastlane.siblings.of(client, model)


def options_at(
    client: Any, sibling: Any, options: Any, call: Call, model: CatalogModel, plan: RoutePlan
) -> tuple[Any, Adapted]:
    """The options of a client's call at a model of the catalog, and what was changed for it.

    `sibling` is the client of that model.
    """
    own_facts = client._fastlane.facts_of(call.origin)
    facts = plan.knowledge.facts_of(model, own_facts)
    extra = frozenset(options.extra_json or ())
    made = adapted(call.body, call.endpoint, model, facts, extra=extra)
    options = options_for(options, client, model, own=model.base_url is None, forward=plan.forward_headers)
    origin = plan.catalog.origin_of(model) or call.origin
    made = _without_refused(made, refusals.at(sibling, options, origin, model.model), model)
    return changed_options(options, {"json_data": made.body, "extra_json": None}), made


def _without_refused(made: Adapted, known: frozenset[str], model: CatalogModel) -> Adapted:
    """A body without what this upstream has refused before, which cost a round trip."""
    refused = tuple([name for name in made.doubtful if name in known])
    if not refused:
        return made
    return Adapted(
        {name: value for name, value in made.body.items() if name not in refused},
        (*made.changes, f"left out {', '.join(refused)}, which {model.name} has refused before"),
        tuple([name for name in made.doubtful if name not in refused]),
    )
