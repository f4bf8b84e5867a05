"""The tables of a queue, for both databases: what is read often is kept apart from what is long."""

from __future__ import annotations

VERSION = 1
"""Of the tables. A queue of a higher one is refused, and one of a lower one is brought to this."""

# {number}: a whole number that the database counts up by itself, never giving one twice; {whole}, {real}, {bytes}: of 8
# bytes, and of any length. Truth is 0 or 1. Times are seconds since the epoch.
TABLES = """
CREATE TABLE queue (
    one {whole} PRIMARY KEY CHECK (one = 1),
    version {whole} NOT NULL,
    queue_id TEXT NOT NULL,
    made_at {real} NOT NULL,
    finished {whole} NOT NULL
);
CREATE TABLE jobs (
    number {number},
    key TEXT NOT NULL UNIQUE,
    endpoint TEXT NOT NULL,
    model TEXT NOT NULL,
    size {whole} NOT NULL,
    digest {bytes} NOT NULL,
    state TEXT NOT NULL,
    attempts {whole} NOT NULL DEFAULT 0,
    not_before {real} NOT NULL DEFAULT 0,
    submitted_at {real} NOT NULL,
    finished_at {real},
    sequence {whole},
    batch TEXT,
    owner TEXT,
    lease_until {real},
    cancel_asked {whole} NOT NULL DEFAULT 0,
    status_code {whole},
    error TEXT,
    input_tokens {whole},
    output_tokens {whole},
    cached_tokens {whole}
);
CREATE INDEX jobs_waiting ON jobs (endpoint, model, number) WHERE state = 'waiting';
CREATE INDEX jobs_packed ON jobs (batch, number) WHERE state = 'packed';
CREATE INDEX jobs_running ON jobs (owner, lease_until) WHERE state = 'running';
CREATE INDEX jobs_batches ON jobs (batch) WHERE batch IS NOT NULL;
CREATE INDEX jobs_states ON jobs (state, finished_at);
CREATE UNIQUE INDEX jobs_sequence ON jobs (sequence) WHERE sequence IS NOT NULL;
CREATE TABLE bodies (number {whole} PRIMARY KEY, body {bytes} NOT NULL);
CREATE TABLE answers (number {whole} PRIMARY KEY, body {bytes} NOT NULL, request_id TEXT);
CREATE TABLE batches (
    name TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    origin TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    model TEXT NOT NULL,
    requests {whole} NOT NULL,
    bytes {whole} NOT NULL,
    owner TEXT NOT NULL,
    turn {whole} NOT NULL,
    lease_until {real} NOT NULL,
    planned_at {real} NOT NULL,
    changed_at {real} NOT NULL,
    unwanted {whole} NOT NULL DEFAULT 0,
    file_id TEXT,
    batch_id TEXT,
    output_file_id TEXT,
    error_file_id TEXT,
    provider_state TEXT,
    create_attempted_at {real},
    provider_done {whole} NOT NULL DEFAULT 0,
    provider_failed {whole} NOT NULL DEFAULT 0,
    error TEXT
);
CREATE INDEX batches_live ON batches (lease_until) WHERE state NOT IN ('collected', 'abandoned');
"""

JOB_COLUMNS = (
    "key", "number", "endpoint", "model", "size", "state", "attempts", "not_before", "submitted_at", "finished_at",
    "batch", "cancel_asked", "status_code", "error", "input_tokens", "output_tokens", "cached_tokens",
)  # fmt: skip
"""Those that a Job has, by its own names."""

BATCH_COLUMNS = (
    "name", "state", "origin", "endpoint", "model", "requests", "bytes", "owner", "turn", "lease_until", "planned_at",
    "changed_at", "unwanted", "file_id", "batch_id", "output_file_id", "error_file_id", "provider_state",
    "create_attempted_at", "provider_done", "provider_failed", "error",
)  # fmt: skip
"""Those that a BatchRow has, by its own names."""


def statements(**types: str) -> list[str]:
    """The statements that make the tables with a database's own types."""
    return [one.strip() for one in TABLES.format(**types).split(";") if one.strip()]
