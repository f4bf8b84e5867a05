"""`python -m fastlane.providers`: prints docs/providers.md."""

import sys

from fastlane.providers._page import page

if __name__ == "__main__":
    sys.stdout.write(page())
