"""A run as tables, charts and pages, from its raw records."""
