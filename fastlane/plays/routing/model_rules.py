"""What one model does with each field of a request: as its catalog says, and else as its provider's facts say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastlane.providers.output_facts import (
    ceiling_fields,
    efforts_of,
    limit_fields,
    most_tokens,
    reasons,
    verbosities_of,
)

if TYPE_CHECKING:
    from fastlane.providers import ProviderFacts

    from .catalog.models import CatalogModel

_EFFORT = ("reasoning_effort", "reasoning.effort")
_VERBOSITY = ("verbosity", "text.verbosity")


class ModelRules:
    """Fields have dotted paths, such as "stream_options.include_usage"."""

    __slots__ = (
        "efforts", "facts", "from_catalog", "is_own", "knows_efforts", "knows_verbosities", "limits", "most_tokens",
        "name", "rules", "verbosities",
    )  # fmt: skip

    def __init__(self, model: CatalogModel, facts: ProviderFacts | None) -> None:
        self.name = model.name
        self.facts = facts
        self.is_own = model.base_url is None
        """Whether it is at the client's own provider, for which the request was written."""
        known = {} if facts is None else {path: fact.value for path, fact in facts.parameters.items()}
        known.update(model.parameters)
        self.rules: Mapping[str, Any] = {path: value for path, value in known.items() if value is not None}
        """True: accepted; False: refused; "ignored"; or the values that it may have."""
        self.from_catalog = frozenset(model.parameters)
        """The fields of which the catalog speaks: what facts say of a provider need not be so of each of its models."""
        thinks = "reasoning" in model.capabilities or reasons(facts, model.model) is True
        self.efforts = self._values(_EFFORT, efforts_of(facts, model.model), thinks)
        """What a reasoning effort may be; () for none, or where nobody says that it takes any; None for anything."""
        self.verbosities = self._values(_VERBOSITY, verbosities_of(facts, model.model), thinks)
        self.knows_efforts = efforts_of(facts, model.model) is not None or bool(self.from_catalog.intersection(_EFFORT))
        """Whether that is said of this model, and not only of its provider, whose models differ."""
        of_model = verbosities_of(facts, model.model)
        self.knows_verbosities = of_model is not None or bool(self.from_catalog.intersection(_VERBOSITY))
        self.limits = {endpoint: self._limit_field(endpoint, model, facts) for endpoint in model.endpoints}
        """By endpoint: the field that bounds the length of an answer; None where each is refused."""
        bounds = (model.max_output_tokens, most_tokens(facts, model.model))
        self.most_tokens = min((bound for bound in bounds if bound is not None), default=None)

    def heeds(self, path: str) -> bool:
        """Whether it acts on a field, as far as is known."""
        rule = self.rules.get(path)
        return rule is not False and rule != "ignored"

    def accepts(self, path: str) -> bool:
        """Whether it is known to take a field, whatever it does with it."""
        return self.rules.get(path, False) is not False

    def knows(self, name: str) -> bool:
        """Whether it is known to take a field, or anything in it."""
        inner = f"{name}."
        return self.accepts(name) or any(path.startswith(inner) and self.accepts(path) for path in self.rules)

    def _values(self, names: tuple[str, str], of_model: tuple[str, ...] | None, thinks: bool) -> tuple[str, ...] | None:
        from_catalog = [self.rules[name] for name in names if name in self.from_catalog]
        from_facts = [of_model] if of_model is not None else [self.rules[name] for name in names if name in self.rules]
        said = next(iter([*from_catalog, *from_facts]), None)
        if isinstance(said, tuple):
            return said
        return () if said is False or not (thinks or any(map(self.accepts, names))) else None

    def _limit_field(self, endpoint: str, model: CatalogModel, facts: ProviderFacts | None) -> str | None:
        fields = limit_fields(endpoint)
        named = [field for field in fields if field in self.from_catalog and self.accepts(field)]
        usable = [field for field in (*ceiling_fields(endpoint, facts, model.model), *fields) if self.heeds(field)]
        return next(iter([*named, *usable]), None)
