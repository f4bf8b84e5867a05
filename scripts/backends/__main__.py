"""Run a backend on loopback, for looking at what an application sends it.

    python -m scripts.backends phoenix       runs Phoenix until Ctrl-C, and says what an application needs to know
    python -m scripts.backends mlflow        the same with MLflow
    python -m scripts.backends --install     sees to it that both of them and Prometheus are installed

Phoenix and MLflow go into virtual environments of their own, Prometheus comes from the distribution.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Sequence

from scripts import prometheus_server
from scripts.backends import _environments
from scripts.backends._mlflow import MLflow
from scripts.backends._phoenix import Phoenix
from scripts.distribution import UnavailableError

_NAME = "my-application"


def _install() -> None:
    for name in _environments.PACKAGES:
        print(_environments.program(name))
    try:
        print(prometheus_server.program())
    except UnavailableError as error:
        # Tests that need it are skipped and say so; the others are worth no less.
        print(error, file=sys.stderr)


def _run(server: Phoenix | MLflow) -> None:
    with server, contextlib.suppress(KeyboardInterrupt):
        place = server.experiment(_NAME) if isinstance(server, MLflow) else _NAME
        print(f"{server.name} is at {server.url}; start the application with:")
        for name, value in server.variables(place).items():
            print(f"  export {name}={value}")
        sys.stdout.flush()
        signal.pause()


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code."""
    try:
        if arguments == ["--install"]:
            _install()
        elif arguments == ["phoenix"]:
            _run(Phoenix())
        elif arguments == ["mlflow"]:
            _run(MLflow())
        else:
            print(__doc__)
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
