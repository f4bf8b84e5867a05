"""Experiments on live calls: a share of them goes to an arm, and the arms are compared as they go."""
