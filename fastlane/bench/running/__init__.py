"""Send the requests of a plan with every arm's client, and record what happened."""
