"""Which connection a request gets, and what is known of each origin."""
