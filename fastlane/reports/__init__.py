"""Where the time of a client's calls went, and what was saved: tables made of their records."""

from ..plays import load_all
from ..records.ledger import Ledger as Ledger, Total as Total
from .groups import Group as Group, Percentiles as Percentiles, Played as Played
from .phases import Phase as Phase
from .report import EndedCalls as EndedCalls, Report as Report

load_all()  # each section has its rows

__all__ = ["EndedCalls", "Group", "Ledger", "Percentiles", "Phase", "Played", "Report", "Total"]
