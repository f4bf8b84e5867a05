"""An answer while it arrives: whether it has ended, runs on, or can no longer become valid."""
