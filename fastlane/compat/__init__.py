"""Everything that knows private parts of openai and of its HTTP client."""
