"""Other load generators, which benchmarks run beside ours."""

from scripts.peers._environments import (
    PACKAGES as PACKAGES,
    PeerError as PeerError,
    install as install,
    python as python,
)
