"""Modules of openai under fastlane's name: `fastlane.types.chat` is the module `openai.types.chat`."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from types import ModuleType
from typing import Any

OPENAI_MODULES = frozenset({"auth", "helpers", "lib", "pagination", "resources", "types"})
"""Top-level modules of openai. For type checkers, fastlane has a stub (`.pyi`) of each documented one."""


class OpenAIModules:
    """A finder and loader for `sys.meta_path` that maps fastlane's names to openai's modules."""

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
        """Return None, so that Python makes the module that `exec_module` replaces."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Replace the module with openai's."""
        sys.modules[module.__name__] = import_module(_openai_name(module.__name__))


def _openai_name(name: str) -> str:
    return f"openai{name.removeprefix('fastlane')}"
