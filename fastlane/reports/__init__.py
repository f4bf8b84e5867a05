"""Where the time of a client's calls went, and what was saved: tables made of their records."""

from ..plays import load_all
from ..records.ledger import Ledger as Ledger, Total as Total
from ._groups import Group as Group
from ._levels import SectionGroup as SectionGroup
from ._percentiles import Percentiles as Percentiles
from ._phases import Phase as Phase
from ._played import Played as Played
from ._report import EndedCalls as EndedCalls, Report as Report

load_all()  # each section has its rows

__all__ = ["EndedCalls", "Group", "Ledger", "Percentiles", "Phase", "Played", "Report", "SectionGroup", "Total"]
