"""One call's output: planned, watched while it arrives, judged, and asked for again."""
