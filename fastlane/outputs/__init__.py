"""Bounded outputs: how long an answer can be, when it is complete, whether it is valid, and what to do if it is not."""
