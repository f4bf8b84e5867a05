"""JSON schemas as they are asked for: how long an answer to one can be, and how a provider takes it."""
