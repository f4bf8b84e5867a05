"""Models known by name; the figures and where they come from stand in presets.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from fastlane.emulator._distribution import Quantiles
from fastlane.emulator._model import ProviderModel

from ..errors import ConfigurationError


@cache
def _tables() -> Mapping[str, dict[str, Any]]:
    text = resources.files("fastlane.emulator").joinpath("presets.toml").read_text(encoding="utf-8")
    return MappingProxyType(tomllib.loads(text))


def presets() -> Mapping[str, str]:
    """Return what each preset is, by name."""
    return {name: table["about"] for name, table in _tables().items()}


def preset(name: str) -> ProviderModel:
    """Return a model by name. Raises ConfigurationError for an unknown one."""
    table = _tables().get(name)
    if table is None:
        raise ConfigurationError(f"unknown preset {name!r}: the known ones are {', '.join(_tables())}")
    settings = {key: value for key, value in table.items() if key not in ("about", "sources")}
    for key in ("prefill_base_s", "inter_token_s"):
        if isinstance(settings.get(key), dict):
            settings[key] = _distribution(settings[key])
    return ProviderModel(name=name, **ProviderModel.values_of(settings))


def _distribution(table: dict[str, Any]) -> Quantiles:
    if "quartiles" in table:
        return Quantiles.from_quartiles(*table["quartiles"])
    return Quantiles(tuple((share, value) for share, value in table["points"]))
