"""Read catalogs from files, the packaged example among them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fastlane.errors import ConfigurationError
from fastlane.providers._load import parsed

from ._mistakes import explained
from ._models import Catalog

_WANTED = "expected a TOML file with a catalog"


def read_file(path: Path) -> Catalog:
    """Read one file. Raises ConfigurationError where it cannot be used."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: {_WANTED}, and there is no file") from None
    except ValueError as error:  # a NUL in the path
        raise ConfigurationError(f"{str(path)!r}: expected the path of a TOML file with a catalog") from error
    except OSError as error:
        what = "a directory" if path.is_dir() else error.strerror
        raise ConfigurationError(f"{path}: {_WANTED}, got {what}") from error
    return catalog_from(parsed(written, str(path)), str(path))


def read_example() -> Catalog:
    """Read the one beside this module."""
    file = "example.toml"
    return catalog_from(parsed(resources.files(__package__).joinpath(file).read_bytes(), file), file)


def catalog_from(tables: Mapping[str, Any], file: str) -> Catalog:
    """Return the catalog that a file says. Raises ConfigurationError with everything that is wrong with it."""
    try:
        return Catalog.model_validate(dict(tables))
    except ValidationError as error:
        said = explained(error, Catalog, tables, file)
    # Outside, so that pydantic's own error, which quotes what came, is nowhere on it.
    raise ConfigurationError(said)
