"""HTML pages of one file each, which load nothing from elsewhere: the look and the frame that they share."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final

from .._version import __version__
from ..errors import MissingExtraError

_FRAME: Final = "fastlane.pages"


def html_page(
    package: str,
    *,
    title: str,
    extra: str,
    name: str = "page",
    scripts: Sequence[str] = (),
    asks: bool = False,
    **values: Any,
) -> str:
    """Return a page of a package: its `page.html` in the common frame, with its `page.css` and `page.js`.

    `values` are what its template shows, as text unless it says otherwise; `scripts` run before its own; `asks` lets it
    ask the server that it comes from. `extra` brings jinja2. Raises MissingExtraError.
    """
    try:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    except ModuleNotFoundError as error:
        raise MissingExtraError(extra, "jinja2") from error
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=ChoiceLoader([PackageLoader(package, ""), PackageLoader(_FRAME, "")]),
    )
    style = text_of(_FRAME, "frame.css") + text_of(package, f"{name}.css")
    scripts = (*scripts, text_of(_FRAME, "frame.js"), text_of(package, f"{name}.js"))
    # https://developer.mozilla.org/docs/Web/HTTP/Reference/Headers/Content-Security-Policy
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_digest, scripts))}; style-src {_digest(style)}; "
        "base-uri 'none'; form-action 'none'" + ("; connect-src 'self'" if asks else "")
    )
    text = environment.get_template(f"{name}.html").render(
        title=title, style=style, scripts=scripts, policy=policy, version=__version__, **values
    )
    # A name from a record may hold what UTF-8 cannot.
    return text.encode("utf-8", "replace").decode()


def text_of(package: str, name: str) -> str:
    """Return a file of a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
