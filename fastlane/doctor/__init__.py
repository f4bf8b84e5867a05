"""What reaching a provider costs from here and what it takes: looked at, judged and written down as facts."""
