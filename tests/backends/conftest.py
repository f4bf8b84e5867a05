"""Real backends, each started once and sent what an application does; `make test-backends` installs them first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.backends._servers import MLflow, Phoenix
from scripts.servers import UnavailableError, program
from tests.backends.kept import Kept, kept_by
from tests.backends.measured import Measured, measured_by_prometheus


@pytest.fixture(scope="session")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    with Phoenix() as server:
        yield kept_by(server, tmp_path_factory.mktemp("phoenix"))


@pytest.fixture(scope="session")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    with MLflow() as server:
        yield kept_by(server, tmp_path_factory.mktemp("mlflow"))


@pytest.fixture(scope="session", params=["phoenix", "mlflow"])
def kept(request: pytest.FixtureRequest) -> Kept:
    """Each of the backends that keep traces."""
    kept: Kept = request.getfixturevalue(request.param)
    return kept


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    try:
        program("prometheus")
    except UnavailableError as error:
        pytest.skip(str(error))
    with measured_by_prometheus(tmp_path_factory.mktemp("prometheus")) as made:
        yield made
