"""Load the modules of `openai.types` when one is first asked for: all 400 take half of the time of `import openai`.

Imported before openai is. A package of `openai.types` only says which of its modules holds which name: that is read,
and not executed. If the application has imported openai already, or if a package says anything else, nothing changes.
All names, classes and modules are openai's own.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

_PACKAGE = "openai.types"


class _LazyPackage(SourceFileLoader):
    """Loads a package whose modules are loaded when a name of theirs is first used."""

    def exec_module(self, module: ModuleType) -> None:
        holders = _holders(self.get_data(self.path))
        if holders is None:
            super().exec_module(module)
            return
        package = module.__name__

        def find(name: str) -> Any:
            if name in holders:
                value = getattr(import_module(f"{package}.{holders[name]}"), name)
                setattr(module, name, value)
                return value
            if not name.startswith("_"):
                # `openai.types.chat` is there without an import of its own.
                try:
                    return import_module(f"{package}.{name}")
                except ModuleNotFoundError as error:
                    if error.name != f"{package}.{name}":
                        raise
            raise AttributeError(f"module {package!r} has no attribute {name!r}")

        module.__dict__.update(
            __getattr__=find, __dir__=lambda: sorted({*vars(module), *holders}), __all__=list(holders)
        )


def _holders(source: bytes) -> dict[str, str] | None:
    """Return which module holds each name of a package; None if the package does more than to say that."""
    found: dict[str, str] = {}
    for statement in ast.parse(source).body:
        if not isinstance(statement, ast.ImportFrom) or statement.module is None:
            return None
        if statement.module == "__future__":
            continue
        if statement.level != 1 or any(alias.asname != alias.name for alias in statement.names):
            return None
        found |= {alias.name: statement.module for alias in statement.names}
    return found


class _Finder:
    """A finder for `sys.meta_path` of the packages of `openai.types`."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not f"{name}.".startswith(f"{_PACKAGE}."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.submodule_search_locations and type(spec.loader) is SourceFileLoader:
            spec.loader = _LazyPackage(spec.name, spec.loader.path)
        return spec


if "openai" not in sys.modules and os.environ.get("FASTLANE_DISABLED", "").strip() in ("", "0"):
    sys.meta_path.insert(0, _Finder)
