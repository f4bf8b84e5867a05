"""Write the page of a report: the answer and its pictures first, every table behind a heading that opens."""

from __future__ import annotations

from functools import cache
from typing import Final

from ...errors import MissingExtraError
from ...pages import html_page
from ..checks import Checked
from ..findings import Findings
from ..recorded import RecordedRun
from ._charts import arm_colours, charts_of
from ._material import Material
from ._screen import ArmGroup, changes_of, groups_of
from ._tables import RunReport, Table

_KINDS: Final = {"ab": "A/B: arms side by side", "sweep": "Sweep: by users, rate and length"}


def page(report: RunReport, recorded: RecordedRun, findings: Findings, checked: Checked) -> str:
    """Return a report of a run as one HTML file, with its charts. Raises MissingExtraError."""
    material = Material(recorded=recorded, findings=findings, checked=checked)
    valid = material.refused_all() is None
    groups = (groups_of(material) or ()) if report.kind == "ab" and valid else ()
    charts = charts_of(report.kind, material) if valid else ()
    urgent = [line for line in report.verdicts if line.tone in ("bad", "warning")]
    return html_page(
        "fastlane.bench.reports",
        title=f"{report.title} - fastlane bench",
        extra="charts",
        scripts=(_vega(),) if charts else (),
        report=report,
        kind=_KINDS[report.kind],
        tiles=[(group, changes_of(material, group)) for group in groups if not _refused(material, group)],
        verdicts=urgent if groups else report.verdicts,
        words=report.verdicts if groups else (),
        charts=charts,
        is_table=lambda part: isinstance(part, Table),
        colours=arm_colours(recorded),
        started_at=recorded.header.started_at,
    )


def _refused(material: Material, group: ArmGroup) -> bool:
    cell = material.cells[0].name
    return any(material.refused(cell, arm.name) for arm in (group.reference, *group.arms))


@cache
def _vega() -> str:
    """Return the scripts that draw charts: Vega, Vega-Lite and Vega-Embed, under their licences (BSD-3-Clause)."""
    try:
        import vl_convert
    except ModuleNotFoundError as error:
        raise MissingExtraError("charts", "vl-convert-python") from error
    bundle: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]
    return bundle
