"""What is known of prompts that were sent: what they had in common, what broke it, and what providers kept."""
