"""The play `Routing`: the fastest model above a quality bar, for this call."""
