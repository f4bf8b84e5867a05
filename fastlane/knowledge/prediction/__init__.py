"""What to expect of an upstream's next answer, from what its answers have shown so far."""
