"""Catalogs of models: one that says all that stood there, or a ConfigurationError that says where, and no key."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from pydantic import BaseModel

from fastlane import ConfigurationError
from fastlane.plays.routing.catalog.models import HIDDEN, Catalog, CatalogModel, ModelPrice, Task
from fastlane.plays.routing.catalog.scores import Score
from fastlane.providers.files import checked, parsed
from tests.fuzz.drawn import Drawn, chance
from tests.fuzz.targets._facts import fed_file
from tests.fuzz.targets._tables import FILE, check_refusal, drawn_file, drawn_tables, is_kept, read
from tests.fuzz.targets._target import Target, holds

_NAMES = (
    *Catalog.model_fields,
    *CatalogModel.model_fields,
    *ModelPrice.model_fields,
    *Task.model_fields,
    "tools",
    "passed",
)
_SECRET = "sk-proj-0123456789abcdefghijkl"
_MODEL = 'name = "m{n}"\nfirst_token_s = [[1000, 0.5]]\ntokens_per_s = 50.0\n'


@cache
def _example() -> bytes:
    return resources.files("fastlane.plays.routing.catalog").joinpath("example.toml").read_bytes()


@cache
def _tables() -> tuple[dict[str, Any], ...]:
    small = "[[models]]\n" + _MODEL.format(n=1)
    found = (
        read(_example()),
        read(small.encode()),
        read((f"{small}\n[models.price]\ninput = 1.0\noutput = 2.0\n").encode()),
    )
    return tuple(one for one in found if one is not None)


def check(data: bytes) -> None:
    """By the first byte: a file of bytes, or tables drawn by them; every fourth with a key where none belongs."""
    draw = Drawn(data[1:])
    kind = data[0] if data else 0
    tables: Any
    if kind % 3 == 0:
        written = drawn_file(data[1:])
        try:
            tables = parsed(written, FILE)
        except ConfigurationError as error:
            check_refusal(error)
            return
    else:
        tables = drawn_tables(draw, _tables(), _NAMES)
    hidden = kind % 4 == 3 and _hide(tables, draw)
    try:
        catalog = checked(Catalog, tables, FILE, HIDDEN)
    except ConfigurationError as error:
        check_refusal(error)
        if hidden:
            holds(_SECRET not in f"{error!r} {error.__cause__!r} {error.__context__!r}", "a refusal quotes a key")
        return
    holds(not hidden, "a key is taken for the name of a variable, or for an address")
    _check_catalog(catalog, tables)


def _hide(tables: Any, draw: Drawn) -> bool:
    """Put a key where people put one by mistake."""
    models = tables.get("models") if isinstance(tables, Mapping) else None
    if not isinstance(models, list) or not models or not isinstance(models[0], dict):
        return False
    where = draw.choice(("api_key_env", "base_url", "api_key"))
    text = _SECRET if where != "base_url" else f"https://user:{_SECRET}@a.test"
    models[0][where] = draw.choice((text, text, [text], {"key": text}))
    return True


def _check_catalog(catalog: Catalog, tables: Any) -> None:
    dumped = _plain(catalog)
    again = Catalog.model_validate(dumped)
    holds(again == catalog and again.digest == catalog.digest, "a catalog that was written down is another", dumped)
    holds(pickle.loads(pickle.dumps(catalog)) == catalog, "a catalog that was pickled is another")
    for given, model in zip(tables["models"], catalog.models, strict=True):
        if isinstance(given, Mapping):
            of_order = ("first_token_s", "capabilities", "base_url")
            plain = {name: value for name, value in given.items() if name not in of_order}
            missing = is_kept(plain, _plain(model))
            holds(missing is None, "what stood there is left out", missing, given)
            holds(catalog.named(model.name) is model, "a model has another's name", model.name)
        catalog.origin_of(model)


def _plain(value: Any) -> Any:
    """What a part of a catalog is made of."""
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, Score):
        return {"passed": value.passed, "count": value.count}
    return tuple(_plain(one) for one in value) if isinstance(value, tuple) else value


def seeds() -> list[bytes]:
    """The package's own example, and bytes that draw changes of it."""
    drawn = chance(30, 120)
    return [b"\0" + bytes(64) + _example(), *(bytes([kind]) + one for one in drawn for kind in (1, 7))]


TARGET = Target(
    name="catalog",
    check=check,
    seeds=seeds,
    grown={
        "many models": fed_file(
            lambda written: checked(Catalog, parsed(written, FILE), FILE, HIDDEN),
            lambda size: "".join("[[models]]\n" + _MODEL.format(n=number) for number in range(size // 75)),
        ),
        "many pairs": fed_file(
            lambda written: checked(Catalog, parsed(written, FILE), FILE, HIDDEN),
            lambda size: '[[models]]\nname = "a"\ntokens_per_s = 1.0\nfirst_token_s = ['
            + ",".join(f"[{number + 1}, 0.5]" for number in range(size // 12)) + "]\n",
        ),
        "many unknown keys": fed_file(
            lambda written: checked(Catalog, parsed(written, FILE), FILE, HIDDEN),
            lambda size: "[[models]]\n" + "".join(f"k{number} = 1\n" for number in range(size // 12)),
        ),
    },
)  # fmt: skip
