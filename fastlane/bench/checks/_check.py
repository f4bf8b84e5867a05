"""All checks of a run, and the list of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..findings import Findings
from ..recorded import RecordedRun
from . import _arms, _client, _load, _reuse, _server_log, _times, _tokens
from ._sight import Check, Sight
from ._types import Checked

_ALL: Final[tuple[Check, ...]] = (
    *_server_log.CHECKS,
    *_times.CHECKS,
    *_tokens.CHECKS,
    *_client.CHECKS,
    *_load.CHECKS,
    *_arms.CHECKS,
    *_reuse.CHECKS,
)


def check(recorded: RecordedRun, findings: Findings | None = None) -> Checked:
    """Return what every check says of a run.

    With its findings, effects that are claimed are held against the lags of the measuring processes, figures against
    one another, and the reference against its copy; without them those say "not checked", or are silent.
    """
    sight = Sight(recorded=recorded, findings=findings)
    results = tuple(answer for each in _ALL for answer in each.look(sight))
    header = recorded.header
    return Checked(results=results, references={arm.name: header.reference_of(arm.name).name for arm in header.arms})


def catalogue() -> Mapping[str, str]:
    """Return every check by its name, with one line of what it looks for."""
    return MappingProxyType({each.name: each.line for each in _ALL})
