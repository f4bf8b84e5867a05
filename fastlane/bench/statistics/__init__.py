"""Estimates, intervals and tests: pure functions on numbers."""
