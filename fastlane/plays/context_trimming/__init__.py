"""The play `Curation`: keep conversations small without changing their beginning with every turn."""
