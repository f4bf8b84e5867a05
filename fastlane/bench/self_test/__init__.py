"""The harness against a server that stamps what it sends: how far its own figures are from the truth."""

from ._lanes import Lanes as Lanes, Read as Read, read_lanes as read_lanes
from ._score import (
    ClientTimes as ClientTimes,
    MeasurementErrors as MeasurementErrors,
    percentile as percentile,
    score as score,
)
from ._self_test import (
    ARMS as ARMS,
    LANES as LANES,
    MOST_P50_MS as MOST_P50_MS,
    MOST_P99_MS as MOST_P99_MS,
    MOST_TPOT_ERROR as MOST_TPOT_ERROR,
    OURS as OURS,
    PACES as PACES,
    SelfTest as SelfTest,
    SelfTestRow as SelfTestRow,
    readings as readings,
    row as row,
    run as run,
)
from ._table import print_self_test as print_self_test
from ._truth_log import ServedRequest as ServedRequest, TruthLog as TruthLog, read_log as read_log
from ._truth_server import (
    ServerPace as ServerPace,
    TruthServer as TruthServer,
    TruthServerError as TruthServerError,
    compiler as compiler,
    truth_server as truth_server,
)
