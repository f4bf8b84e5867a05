"""The play `Connection`: pooled, warm connections over HTTP/2."""
