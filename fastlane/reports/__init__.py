"""Reports on a client's calls: where their time went, and what was saved."""

from ..plays import load_all
from ..records.ledger import Ledger as Ledger, Total as Total
from .groups import Group as Group, Percentiles as Percentiles
from .phases import Phase as Phase
from .report import EndedCalls as EndedCalls, Played as Played, Report as Report

load_all()  # plays register their rows

__all__ = ["EndedCalls", "Group", "Ledger", "Percentiles", "Phase", "Played", "Report", "Total"]
