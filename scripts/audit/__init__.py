"""What of the package is checked from outside: its dependencies, its files, what it imports, opens and reaches."""
