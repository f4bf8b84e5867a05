"""What one model does with each field of a request: by its catalog, and else by its provider's facts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

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

# Facts change only where the application registers its own.
_MOST_REMEMBERED = 1_024
_EFFORTS = ("reasoning_effort", "reasoning.effort")
_VERBOSITIES = ("verbosity", "text.verbosity")


class Takes:
    """Fields have dotted paths, such as "stream_options.include_usage"."""

    __slots__ = (
        "by_catalog", "efforts", "has_efforts", "has_verbosities", "is_own", "limited", "most_tokens", "name",
        "narrowed", "rules", "takes_effort", "takes_verbosity", "verbosities",
    )  # fmt: skip

    def __init__(self, model: CatalogModel, facts: ProviderFacts | None) -> None:
        self.name = model.name
        self.is_own = model.base_url is None
        """Whether it is asked at the application's own provider, for which its request was written."""
        known = {} if facts is None else {path: fact.value for path, fact in facts.parameters.items()}
        known.update(model.parameters)
        self.rules: Mapping[str, Any] = {path: value for path, value in known.items() if value is not None}
        """True: accepted; False: refused; "ignored"; or the values that it may have."""
        self.by_catalog = frozenset(model.parameters)
        """The fields of which the catalog speaks: what facts say of a provider need not be so of each of its models."""
        self.narrowed = tuple(
            (*path.partition(".")[::2], value)
            for path, value in self.rules.items()
            if "." in path and (value is False or isinstance(value, tuple)) and path not in (*_EFFORTS, *_VERBOSITIES)
        )
        """What it refuses within a field, or takes some values of: the field, the path within it, what it may be."""
        own_efforts, own_verbosities = _own(model, _EFFORTS), _own(model, _VERBOSITIES)
        model_efforts, model_verbosities = efforts_of(facts, model.model), verbosities_of(facts, model.model)
        self.has_efforts = own_efforts is not None or model_efforts is not None
        """Whether that is said of the model, and not only of its provider, whose models differ."""
        self.has_verbosities = own_verbosities is not None or model_verbosities is not None
        self.efforts = _allowed(own_efforts, model_efforts, self.rules, _EFFORTS)
        """What a reasoning effort may be; () for none; None where nobody knows, or anything goes."""
        self.verbosities = _allowed(own_verbosities, model_verbosities, self.rules, _VERBOSITIES)
        # What the catalog does not say, a model cannot do, unless facts know better.
        thinks = "reasoning" in model.capabilities or reasons(facts, model.model) is True
        self.takes_effort = thinks or self.efforts is not None or any(map(self.accepts, _EFFORTS))
        """Whether anybody has said that it takes some effort, or none at all."""
        self.takes_verbosity = thinks or self.verbosities is not None or any(map(self.accepts, _VERBOSITIES))
        self.limited = {endpoint: self._limited(endpoint, model, facts) for endpoint in model.endpoints}
        """By endpoint: the field that bounds the length of an answer; None where each is refused."""
        bounds = (model.max_output_tokens, most_tokens(facts, model.model))
        self.most_tokens = min((bound for bound in bounds if bound is not None), default=None)

    def heeds(self, path: str) -> bool:
        """Whether it acts on a field, as far as anybody knows."""
        rule = self.rules.get(path)
        return rule is not False and rule != "ignored"

    def accepts(self, path: str) -> bool:
        """Whether somebody has said that it takes a field, whatever it does with it."""
        return self.rules.get(path, False) is not False

    def knows(self, name: str) -> bool:
        """Whether somebody has said that it takes a field, or anything in it."""
        begin = f"{name}."
        return self.accepts(name) or any(
            path.startswith(begin) and rule is not False for path, rule in self.rules.items()
        )

    def _limited(self, endpoint: str, model: CatalogModel, facts: ProviderFacts | None) -> str | None:
        fields = limit_fields(endpoint)
        for field in fields:
            if self.accepts(field) and field in model.parameters:
                return field
        for field in (*ceiling_fields(endpoint, facts, model.model), *fields):
            if self.heeds(field):
                return field
        return None


_takes: dict[tuple[int, int], tuple[ref[CatalogModel], ProviderFacts | None, Takes]] = {}


def takes_of(model: CatalogModel, facts: ProviderFacts | None) -> Takes:
    """Return what a model takes; the second question costs a look into a dict."""
    # By identity: to hash a model is to hash all that is known of it. Facts are kept, so that no other ones have their
    # place, and all of it is forgotten with the model: an application may make a catalog for each of its clients.
    which = (id(model), id(facts))
    found = _takes.get(which)
    if found is None or found[0]() is not model:
        if len(_takes) >= _MOST_REMEMBERED:
            _takes.clear()
        forget = partial(_forget, which)
        found = _takes[which] = (ref(model, forget), facts, Takes(model, facts))
    return found[2]


def _forget(which: tuple[int, int], gone: ref[CatalogModel]) -> None:
    found = _takes.get(which)
    if found is not None and found[0] is gone:
        _takes.pop(which, None)


def _own(model: CatalogModel, names: tuple[str, ...]) -> Any:
    """What the catalog says of a field that has two names."""
    return next((model.parameters[name] for name in names if name in model.parameters), None)


def _allowed(
    own: Any, by_model: tuple[str, ...] | None, rules: Mapping[str, Any], names: tuple[str, ...]
) -> tuple[str, ...] | None:
    """The values that a field may have: what is said of the model in the catalog counts before what facts say of it."""
    said = own if own is not None else by_model
    if said is None:
        said = next((rules[name] for name in names if name in rules), None)
    if said is False:
        return ()
    return said if isinstance(said, tuple) else None
