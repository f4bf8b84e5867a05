"""When a call that is late is sent a second time, and what that may cost."""
