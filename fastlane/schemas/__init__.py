"""JSON schemas as they are asked for: how long an answer to one can be, and how a provider takes it."""

from .bound import Bound as Bound, Gap as Gap, bound as bound

__all__ = ["Bound", "Gap", "bound"]
