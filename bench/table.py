"""What is measured, and against which bars? The one list of every measurement.

The bars are for a machine of two cores and a disk that really flushes.
"""

from __future__ import annotations

from bench.limits import measure_limits
from bench.measurement import Bar, Measurement, Reading
from bench.memory import measure_live, measure_released
from bench.peers.absurd import measure_absurd
from bench.peers.dbos import measure_dbos
from bench.peers.langgraph import measure_langgraph
from bench.replay import measure_replay
from bench.starts import measure_starts
from bench.steps import measure_alone, measure_steps, measure_sync_steps
from bench.suspended import measure_suspended, measure_wake
from bench.trees import measure_answers, measure_children

PEER_TIMEOUT_S = 180.0
PEER_STEPS = ("dbos.steps", "langgraph.steps", "absurd.steps")
PEER_ALONE = ("dbos.alone", "langgraph.alone", "absurd.alone")
NOISE_KIB = 0.1

MEASUREMENTS = (
    Measurement(
        "raw",
        measure_limits,
        (
            Reading("raw.commits", "raw SQLite, commits of one row", "/s"),
            Reading("raw.rows", "raw SQLite, rows in commits of 100", "/s"),
            Reading("raw.ten", "raw SQLite, ten commits", "ms"),
        ),
    ),
    Measurement(
        "steps",
        measure_steps,
        (
            Reading(
                "steps",
                "steps, 100 executions of 10",
                "/s",
                Bar(15_000),
                ("raw.rows", *PEER_STEPS),
            ),
            Reading("steps.loop", "CPU per step, event loop", "us"),
            Reading("steps.others", "CPU per step, store threads", "us"),
        ),
    ),
    Measurement(
        "sync",
        measure_sync_steps,
        (Reading("sync", "the same, steps in threads", "/s", beside=("raw.rows", *PEER_STEPS)),),
    ),
    Measurement(
        "alone",
        measure_alone,
        (
            Reading(
                "alone",
                "one execution of 10 steps alone",
                "ms",
                Bar(8, at_most=True),
                ("raw.ten", *PEER_ALONE),
            ),
        ),
    ),
    Measurement(
        "starts",
        measure_starts,
        (
            Reading("starts", "starts, start_many of 100", "/s", Bar(5_000), ("raw.rows",)),
            Reading("starts.single", "starts, one by one", "/s", beside=("raw.commits",)),
        ),
    ),
    Measurement(
        "replay",
        measure_replay,
        (Reading("replay", "replay of 10,000 steps", "s", Bar(0.5, at_most=True)),),
    ),
    Measurement(
        "wake",
        measure_wake,
        (Reading("wake", "signal to function, in process", "ms", Bar(5, at_most=True)),),
    ),
    Measurement(
        "children",
        measure_children,
        (
            Reading("children", "1,000 children, start to result", "s", Bar(2, at_most=True)),
            Reading("children.ratio", "the same with 10,000, against 1,000", "x"),
        ),
    ),
    Measurement(
        "answers",
        measure_answers,
        (
            Reading(
                "answers", "gather of 1,000 receives, answered singly", "s", Bar(3, at_most=True)
            ),
        ),
    ),
    Measurement(
        "suspended",
        measure_suspended,
        (
            Reading("suspended.few", "wake-up beside 100 suspended", "ms"),
            Reading("suspended.many", "wake-up beside 100,000", "ms"),
            Reading("suspended", "the ratio of these two", "x", Bar(1.2, at_most=True)),
            Reading("idle", "idle worker beside 100,000", "% core", Bar(1, at_most=True)),
        ),
        timeout_s=1_200.0,
    ),
    Measurement(
        "memory.live",
        measure_live,
        (Reading("memory.live", "memory per live execution (RSS)", "KiB", Bar(20, at_most=True)),),
    ),
    Measurement(
        "memory.suspended",
        measure_released,
        (
            Reading(
                "memory.suspended",
                "memory per suspended execution (traced)",
                "KiB",
                Bar(NOISE_KIB, at_most=True),
            ),
        ),
    ),
    Measurement(
        "dbos",
        measure_dbos,
        (
            Reading("dbos.steps", "DBOS on SQLite, steps", "/s"),
            Reading("dbos.alone", "DBOS on SQLite, one alone", "ms"),
        ),
        timeout_s=PEER_TIMEOUT_S,
    ),
    Measurement(
        "langgraph",
        measure_langgraph,
        (
            Reading("langgraph.steps", "LangGraph on SQLite, steps", "/s"),
            Reading("langgraph.alone", "LangGraph on SQLite, one alone", "ms"),
        ),
        timeout_s=PEER_TIMEOUT_S,
    ),
    Measurement(
        "absurd",
        measure_absurd,
        (
            Reading("absurd.steps", "Absurd on PostgreSQL, steps", "/s"),
            Reading("absurd.alone", "Absurd on PostgreSQL, one alone", "ms"),
        ),
        timeout_s=PEER_TIMEOUT_S,
    ),
)
