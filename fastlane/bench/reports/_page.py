"""Write the page of a report: the answer and its pictures first, every table behind a heading that opens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from ...errors import MissingExtraError
from ...pages import html_page
from ..checks import Checked
from ..findings import Findings
from ..recorded import RecordedRun
from ._blocks import Block, Chart, Checks, Heading, RunReport, block_kind
from ._charts import arm_colours, draw
from ._material import Material
from ._screen import ArmGroup, changes_of, groups_of

_KINDS: Final[dict[str, str]] = {
    "ab": "A/B: arms side by side",
    "load": "Load: by users or rate",
    "lengths": "Lengths: by input and output",
    "scaling": "Scaling: one user's pace among many",
}


@dataclass(slots=True)
class _Section:
    """What stands below one heading."""

    title: str
    blocks: list[Block] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether it has something that a reader has to see."""
        return any(
            isinstance(block, Checks) and any(each.level == "refused" for each in block.results)
            for block in self.blocks
        )


def page(report: RunReport, recorded: RecordedRun, findings: Findings, checked: Checked) -> str:
    """Return a report of a run as one HTML file, with its charts. Raises MissingExtraError."""
    material = Material(recorded=recorded, findings=findings, checked=checked)
    groups = (groups_of(material) or ()) if report.kind == "ab" and material.refused_all() is None else ()
    charts = [(chart, draw(chart.name, material)) for chart in report.charts()]
    # Where the time goes first: it is the picture that says why.
    charts = sorted((each for each in charts if each[1]), key=lambda each: each[0].name != "waterfall")
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
        sections=_sections(report.blocks),
        colours=arm_colours(recorded),
        block_kind=block_kind,
        started_at=recorded.header.started_at,
    )


def _refused(material: Material, group: ArmGroup) -> bool:
    cell = material.cells[0].name
    return any(material.refused(cell, arm.name) for arm in (group.reference, *group.arms))


def _sections(blocks: Sequence[Block]) -> list[_Section]:
    """Return the blocks without the charts, by their headings; none that would be empty."""
    found: list[_Section] = []
    for block in blocks:
        if isinstance(block, Heading) and block.level <= 2:
            found.append(_Section(block.text))
        elif not isinstance(block, Chart):
            if not found:
                found.append(_Section("Figures"))
            found[-1].blocks.append(block)
    return [section for section in found if any(not isinstance(block, Heading) for block in section.blocks)]


@cache
def _vega() -> str:
    """Return the scripts that draw charts: Vega, Vega-Lite and Vega-Embed, under their licences (BSD-3-Clause)."""
    try:
        import vl_convert
    except ModuleNotFoundError as error:
        raise MissingExtraError("charts", "vl-convert-python") from error
    bundle: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]
    return bundle
