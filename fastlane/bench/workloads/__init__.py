"""What is asked: conversations to replay, and presets."""

from ._sources import (
    Preset as Preset,
    Scenario as Scenario,
    TokenLengths as TokenLengths,
    code_review as code_review,
    preset as preset,
    presets as presets,
    read_workload as read_workload,
    scenarios as scenarios,
)
from ._workload import (
    Conversation as Conversation,
    Turn as Turn,
    Workload as Workload,
    salted as salted,
    salted_tools as salted_tools,
)
