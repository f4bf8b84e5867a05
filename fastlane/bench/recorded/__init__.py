"""What a run leaves behind: raw records, from which every figure and every report is made."""

from ._folder import (
    RunWriter as RunWriter,
    duration_s as duration_s,
    read_run as read_run,
    see_writable as see_writable,
    with_own_records as with_own_records,
)
from ._header import ArmInfo as ArmInfo, Cell as Cell, Header as Header, Role as Role
from ._metrics import (
    DEFAULT_METRICS as DEFAULT_METRICS,
    METRICS as METRICS,
    RequestMetric as RequestMetric,
    metric_named as metric_named,
)
from ._recorded import RecordedRun as RecordedRun
from ._sample import Part as Part, Sample as Sample, SampleKey as SampleKey
from ._vitals import Vitals as Vitals
