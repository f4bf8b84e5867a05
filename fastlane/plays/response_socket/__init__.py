"""The play `ResponseSocket`: turns of a conversation over WebSockets, each with only what is new in it."""
