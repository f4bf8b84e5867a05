"""What providers send: events, tokens, usage, and streamed answers assembled."""
