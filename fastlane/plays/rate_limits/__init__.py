"""The play `RateLimits`: keep to a provider's rate limits before it refuses a request."""
