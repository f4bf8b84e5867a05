"""When the next request may go: a provider's rate limits, read out of its answers and kept to before it refuses."""
