"""The play `Routing`: the fastest model of a catalog that is good enough."""
