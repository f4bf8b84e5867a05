"""JSON schemas of structured answers: how long an answer can be, and how a provider takes it."""

from .bound import Bound as Bound, Gap as Gap, bound as bound

__all__ = ["Bound", "Gap", "bound"]
