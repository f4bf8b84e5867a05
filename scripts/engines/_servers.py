"""The engines' own OpenAI-compatible servers, each installed into an environment of its own and started on loopback."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from scripts.backends._server import Server
from scripts.distribution import UnavailableError
from scripts.environments import ROOT, environment

_HOME = ROOT / ".venv-engines"
_INSTALL_S = 1_800.0
_MAKE_S = 300.0
_HERE = Path(__file__).parent


def _transformers() -> Path:
    return environment(
        _HOME / "transformers",
        ("transformers[serving]", "torch", "gguf"),
        pins=_HERE / "constraints-transformers.txt",
        limit_s=_INSTALL_S,
    )


def _llama_cpp() -> Path:
    # Compiled here, for this machine's processor: no wheel of it is on the package index.
    return environment(
        _HOME / "llama_cpp",
        ("llama-cpp-python[server]",),
        pins=_HERE / "constraints-llama_cpp.txt",
        limit_s=_INSTALL_S,
        variables={"CMAKE_ARGS": "-DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF -DMTMD_BUILD=OFF"},
    )


def _made(script: str, target: Path, *arguments: Path) -> Path:
    """Return `target`, which the script makes first where it is missing."""
    if target.exists():
        return target
    unfinished = target.with_name(f"{target.name}.unfinished")
    command = [str(_transformers() / "bin" / "python"), str(_HERE / script), *map(str, arguments), str(unfinished)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_MAKE_S, check=False)
    if done.returncode:
        raise UnavailableError(f"{script} fails:\n" + "\n".join(done.stderr.splitlines()[-5:]))
    unfinished.rename(target)
    return target


def model() -> Path:
    """The model's folder, made first where it is missing. Raises UnavailableError."""
    return _made("_make_model.py", _HOME / "gpt2-random")


def model_file() -> Path:
    """The same model as one GGUF file."""
    return _made("_make_gguf.py", _HOME / "gpt2-random.gguf", model())


class Transformers(Server):
    """`transformers serve`."""

    name = "transformers"
    health = "/health"
    limit_field = "max_completion_tokens"

    def __init__(self) -> None:
        super().__init__()
        self._program = _transformers() / "bin" / "transformers"
        self.model = str(model())

    def command(self) -> list[str]:
        """Serve that one model, on the CPU, one request after the other."""
        (self.directory / "hub").mkdir(exist_ok=True)
        place = ("--host", "127.0.0.1", "--port", str(self.port))
        how = ("--device", "cpu", "--dtype", "float32", "--no-continuous-batching")
        return [str(self._program), "serve", self.model, *place, *how]

    def environment(self) -> Mapping[str, str]:
        """A home of its own, and no look at any hub."""
        return {"HF_HOME": str(self.directory), "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


class LlamaCpp(Server):
    """`python -m llama_cpp.server`."""

    name = "llama_cpp"
    health = "/v1/models"
    model = "gpt2-random"
    # It reads past "max_completion_tokens", and goes on until its context is full.
    limit_field = "max_tokens"

    def __init__(self) -> None:
        super().__init__()
        self._program = _llama_cpp() / "bin" / "python"
        self._file = model_file()

    def command(self) -> list[str]:
        """Serve that one model with two threads; a second request waits for the first, and does not cut it off."""
        place = ("--host", "127.0.0.1", "--port", str(self.port))
        what = ("--model", str(self._file), "--model_alias", self.model, "--n_ctx", "4096")
        how = ("--n_threads", "2", "--n_threads_batch", "2", "--interrupt_requests", "False")
        return [str(self._program), "-m", "llama_cpp.server", *what, *place, *how]


ENGINES: Final[Mapping[str, type[Transformers | LlamaCpp]]] = {"transformers": Transformers, "llama_cpp": LlamaCpp}
