"""Whether a whole answer is valid, and what is wrong with it."""
