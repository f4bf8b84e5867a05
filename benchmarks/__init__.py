"""One script per claim of the README: `python -m benchmarks.NAME [--quick] [--json]`."""
