"""Which model answers a call: what it asks for, what is expected of each, and the decision."""
