"""Real engines on the CPU, with a model of GPT-2's shape and random weights: real times, and no sense in the texts."""
