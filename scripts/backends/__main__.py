"""Run a backend on loopback, for looking at what an application sends it.

    python -m scripts.backends phoenix       runs Phoenix until Ctrl-C, and says what an application needs to know
    python -m scripts.backends mlflow        the same with MLflow
    python -m scripts.backends --install     installs both of them and Prometheus
    python -m scripts.backends application   runs the application that the tests drive (--help says more)

Phoenix and MLflow go into virtual environments of their own, Prometheus comes from the distribution.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from scripts.backends._servers import Backend, MLflow, Phoenix
from scripts.servers import UnavailableError, program, run_until_interrupted


def _install() -> None:
    print(Phoenix.program(), MLflow.program(), sep="\n")
    try:
        print(program("prometheus"))
    except UnavailableError as error:
        # Tests that need it are skipped and say so; the others are worth no less.
        print(error, file=sys.stderr)


def _advice(server: Backend) -> str:
    variables = server.variables(server.project("my-application"))
    exports = [f"  export {name}={value}" for name, value in variables.items()]
    return "\n".join([f"{server.name} is at {server.url}; start the application with:", *exports])


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code."""
    backends: dict[str, type[Backend]] = {"phoenix": Phoenix, "mlflow": MLflow}
    try:
        if arguments == ["--install"]:
            _install()
        elif arguments[:1] == ["application"]:
            from scripts.backends import _application

            _application.main(arguments[1:])
        elif len(arguments) == 1 and arguments[0] in backends:
            server = backends[arguments[0]]()
            run_until_interrupted(server, lambda: _advice(server))
        else:
            print(__doc__)
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
