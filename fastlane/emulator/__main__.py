"""`python -m fastlane.emulator`: the process that `Emulator` starts."""

from fastlane.emulator._child import run_child

if __name__ == "__main__":
    run_child()
