"""Calls of an application, kept so that they can be replayed: their shape, or with their text when asked."""

from .recording import Recording as Recording, record as record

__all__ = ["Recording", "record"]
