"""Keep conversations small without breaking their beginning with every turn."""

from ._curate import Curated as Curated, curate as curate

__all__ = ["Curated", "curate"]
