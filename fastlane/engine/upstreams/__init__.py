"""Clients for other providers, which carry nothing of the application's own client there."""
