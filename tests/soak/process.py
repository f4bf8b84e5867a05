"""What the process that makes the calls begins with: `python -m tests.soak.process`, started by `tests.soak`."""

from __future__ import annotations

import importlib
import os
import time


def _between_imports() -> None:
    """Have a fork wait until no thread is in the middle of an import.

    Of any Python program that is forked then, the child waits for ever for the module, if it needs it: no thread there
    goes on with it.
    """
    locks = importlib._bootstrap._module_locks  # type: ignore[attr-defined]
    while any(getattr(reference(), "owner", None) is not None for reference in list(locks.values())):
        time.sleep(0.001)


if __name__ == "__main__":
    # Registered before all others, which makes it the last to be called before a fork: those may wait, too.
    os.register_at_fork(before=_between_imports)
    from tests.soak.life import main

    main()
