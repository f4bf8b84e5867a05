"""The harness against a server that stamps what it sends: how far its own figures are from the truth."""
