"""A streamed answer, put together into the one that comes without streaming, or ended in good order."""
