"""The play `BoundedOutput`: bound structured outputs and stop them when the JSON is complete."""
