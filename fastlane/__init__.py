"""A drop-in OpenAI client that makes calls to LLM APIs faster from the client's side."""
