"""One call from its arguments to its result, and the interface of plays."""
