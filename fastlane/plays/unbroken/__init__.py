"""The play `Unbroken`: stalled streams end early, and broken ones go on where the API allows it."""
