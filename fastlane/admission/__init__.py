"""Who of those that wait is sent next: a gate for each origin, account and model, shared by a process."""
