"""The bench's own workers against a server that stamps what it sends: how far recorded figures are from the truth."""

from .lanes import Lanes as Lanes, read_lanes as read_lanes
from .log import ServedRequest as ServedRequest, TruthLog as TruthLog, read_log as read_log
from .score import (
    ClientTimes as ClientTimes,
    MeasurementErrors as MeasurementErrors,
    percentile as percentile,
    score as score,
)
from .server import (
    ServerPace as ServerPace,
    TruthServer as TruthServer,
    TruthServerError as TruthServerError,
    compiler as compiler,
    truth_server as truth_server,
)
from .workers import ARMS as ARMS, LANES as LANES, PACES as PACES, WorkerRow as WorkerRow, run as run
