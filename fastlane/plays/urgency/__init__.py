"""The play `Urgency`: interactive, background and offline traffic kept apart."""
