"""The clients: openai's classes with the plays, the engine and the transport put together."""
