"""Run by each Python process under `fastlane run` when it starts: `fastlane.auto` is imported together with openai.

Child processes inherit it, also those of other Pythons, which may lack fastlane: this needs nothing but Python 3.7.
"""

from __future__ import annotations

import os
import sys

# typing, importlib and pathlib take milliseconds of each start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__))


class _Finder:
    """Waits in `sys.meta_path` for the first import of openai."""

    is_new = True

    @classmethod
    def find_spec(cls, name: str, *_: Any) -> Any:
        if name != "openai":
            return None
        if cls.is_new:
            cls.is_new = False
            _load_types_late()
        found = (finder.find_spec(name, None) for finder in sys.meta_path if finder is not cls)
        spec: Any = next(filter(None, found), None)
        # A program may only look whether openai is there: the finder stays until openai runs.
        if spec is not None and spec.loader is not None:
            loader, run = spec.loader, spec.loader.exec_module

            def exec_module(module: Any) -> None:
                sys.meta_path.remove(cls)
                del loader.exec_module
                run(module)
                _install()

            loader.exec_module = exec_module
        return spec


def _load_types_late() -> None:
    """Run what `import fastlane` runs before openai, by its file: `fastlane` itself imports openai."""
    from importlib.util import find_spec, module_from_spec, spec_from_file_location

    package = find_spec("fastlane")
    for folder in (package and package.submodule_search_locations) or ():  # none in another Python
        spec = spec_from_file_location("_fastlane_types", os.path.join(folder, "compat", "openai_types.py"))
        if spec is not None and spec.loader is not None:
            try:
                spec.loader.exec_module(module_from_spec(spec))
            except Exception:  # noqa: BLE001 - then all types are loaded at once
                pass


def _install() -> None:
    try:
        import fastlane.auto  # noqa: F401
    except Exception as error:  # noqa: BLE001 - the program must run as it would without fastlane
        _say(f"openai's clients stay openai's in {sys.executable}: {type(error).__name__}: {error}")


def _report(main_process: str) -> None:
    auto: Any = sys.modules.get("fastlane.auto")
    if auto is not None:
        auto.print_report(if_empty=main_process == str(os.getpid()))
    elif main_process == str(os.getpid()):
        _say("this process did not import openai")


def _say(what: str) -> None:
    sys.stderr.write(f"fastlane run: {what}\n")


def _run_next_sitecustomize() -> None:
    """Run the `sitecustomize` that Python would have found without this one."""
    sys.path[:] = [folder for folder in sys.path if folder != _FOLDER]
    this = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", this)


if os.environ.get("FASTLANE_DISABLED", "").strip().lower() not in ("1", "true", "yes", "on"):
    sys.meta_path.insert(0, _Finder)
    if "FASTLANE_RUN_REPORT" in os.environ:
        import atexit

        atexit.register(_report, os.environ["FASTLANE_RUN_REPORT"])
if __name__ == "sitecustomize":
    _run_next_sitecustomize()
