"""What is known of a call when it is over."""
