"""What is asked: conversations to replay, presets, recorded traffic."""

from ._code_review import code_review as code_review
from ._lengths import TokenLengths as TokenLengths, exactly as exactly
from ._messages import salted as salted, salted_tools as salted_tools
from ._preset_types import Preset as Preset, Scenario as Scenario
from ._presets import (
    preset as preset,
    preset_named as preset_named,
    presets as presets,
    scenarios as scenarios,
    users_of as users_of,
)
from ._read import read_workload as read_workload
from ._workload import Conversation as Conversation, Turn as Turn, Workload as Workload
