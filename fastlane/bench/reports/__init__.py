"""Reports of a run, made from its raw records: what is said as data, and the forms in which it is shown."""

from ._blocks import (
    Alignment as Alignment,
    Block as Block,
    Chart as Chart,
    Checks as Checks,
    Column as Column,
    Definition as Definition,
    Definitions as Definitions,
    Entry as Entry,
    Fact as Fact,
    Heading as Heading,
    Kind as Kind,
    Paragraph as Paragraph,
    Report as Report,
    Row as Row,
    Table as Table,
    Tone as Tone,
    VerdictLine as VerdictLine,
)
