"""Where several processes share what they have learned."""
