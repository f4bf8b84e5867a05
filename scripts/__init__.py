"""What the project's development needs beside the package: each script is run by hand and by tests."""
