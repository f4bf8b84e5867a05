"""The play `ContextTrimming`: keep conversations small without changing their beginning with every turn."""
