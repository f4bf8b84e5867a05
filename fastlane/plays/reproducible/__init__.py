"""The play `Reproducible`: equal requests with equal seeds, and a word when the backend behind them changes."""
