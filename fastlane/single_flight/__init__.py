"""Identical deterministic calls that are under way at the same time, sent once."""
