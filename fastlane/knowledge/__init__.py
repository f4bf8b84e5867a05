"""What is learned at run time about providers, models and tokens."""
