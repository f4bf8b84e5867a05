"""Modules of openai under fastlane's name: `fastlane.types.chat` is the module `openai.types.chat`."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from types import ModuleType
from typing import Any

OPENAI_MODULES = frozenset({"auth", "helpers", "lib", "pagination", "resources", "types"})
"""Type checkers do not run this module: fastlane has a stub (`.pyi`) for each of these that openai documents."""


class OpenAIModules:
    """Finds and loads them: the stubs are no modules at run time."""

    @classmethod
    def find_spec(cls, name: str, *_: Any) -> ModuleSpec | None:
        """Return the spec of a module that openai has too; None for any other."""
        if not name.startswith("fastlane.") or name.split(".")[1] not in OPENAI_MODULES:
            return None
        if find_spec(_openai_name(name)) is None:
            return None
        return spec_from_loader(name, cls)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Let Python make the module that `exec_module` replaces."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Put openai's module into its place."""
        sys.modules[module.__name__] = import_module(_openai_name(module.__name__))


def _openai_name(name: str) -> str:
    return f"openai{name.removeprefix('fastlane')}"
