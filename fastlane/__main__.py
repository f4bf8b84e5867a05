"""`python -m fastlane`: the command line, for where its script is not on the path."""

from fastlane.cli import main

if __name__ == "__main__":
    main()
