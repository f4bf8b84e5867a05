"""The offline lane: a durable queue of calls, which a worker hands to the provider's batch mode."""
