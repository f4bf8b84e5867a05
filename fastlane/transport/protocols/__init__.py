"""HTTP/1.1, HTTP/2 and TLS as state machines without I/O."""
