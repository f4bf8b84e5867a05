"""The play `PromptCache`: stable prefixes, cache keys, and the reasons for cache misses."""
