"""The I/O of connections: for asyncio and for threads."""
