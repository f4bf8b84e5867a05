"""Confidence sequences: intervals that hold however often they are looked at."""
