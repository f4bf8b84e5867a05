"""Which grade of service a call asks for, which one it gets, and where it goes when that has no capacity."""
