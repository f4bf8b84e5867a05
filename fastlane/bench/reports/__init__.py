"""Reports of a run, made from its raw records: what is said as data, and the forms in which it is shown."""

from ._blocks import (
    Alignment as Alignment,
    Block as Block,
    Chart as Chart,
    Checks as Checks,
    Column as Column,
    Definitions as Definitions,
    Heading as Heading,
    Kind as Kind,
    Paragraph as Paragraph,
    ReportTable as ReportTable,
    RunFact as RunFact,
    RunReport as RunReport,
    TableCell as TableCell,
    TableRow as TableRow,
    Tone as Tone,
)
from ._compare import UNPAIRED as UNPAIRED, compare as compare
from ._csv import csv_rows as csv_rows, write_csv as write_csv
from ._gate import RuleResult as RuleResult, fails as fails, judge as judge, junit as junit
from ._json import document as document, report_document as report_document
from ._live import LiveProgress as LiveProgress
from ._markdown import markdown as markdown, print_terminal as print_terminal
from ._page import page as page
from ._report import KINDS as KINDS, report as report
from ._rules import Rule as Rule, parse_fail_if as parse_fail_if, parse_target as parse_target
from ._screen import screen as screen
