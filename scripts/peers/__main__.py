"""Install the load generators that `benchmarks fidelity` runs beside ours: python -m scripts.peers [NAME ...].

Without a name all of them: guidellm, which brings a deep-learning framework of several gigabytes, and aiperf.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from scripts.peers._environments import PACKAGES, PeerError, install


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code."""
    unknown = [name for name in arguments if name not in PACKAGES]
    if unknown:
        print(__doc__)
        return 2
    try:
        for name in arguments or PACKAGES:
            print(install(name))
    except PeerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
