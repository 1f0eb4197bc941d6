"""Executions: what may be asked for, and that a record survives the store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from perdure.errors import InvalidArgument
from perdure.model.execution import (
    PRIORITY_MAX,
    ErrorInfo,
    Execution,
    ExecutionStatus,
    Page,
    StartOptions,
    StartResult,
)
from perdure.model.ids import new_eid
from perdure.model.provenance import Actor
from perdure.model.queue_task import RESUME, START, QueueTask
from tests.unit.strategies import TEXT

LABELS = st.dictionaries(TEXT, TEXT, max_size=3)
OPTIONS = st.builds(
    StartOptions,
    priority=st.integers(0, PRIORITY_MAX),
    baggage=LABELS,
    tags=LABELS,
    not_before=st.none() | st.datetimes(timezones=st.just(UTC)),
)


def test_four_statuses_are_terminal() -> None:
    terminal = [str(status) for status in ExecutionStatus if status.terminal]
    assert terminal == ["completed", "failed", "cancelled", "terminated"]
    assert [str(status) for status in ExecutionStatus] == [
        "pending",
        "running",
        "suspended",
        "completed",
        "failed",
        "cancelled",
        "terminated",
    ]


# -- options ----------------------------------------------------------------------------------


@given(options=OPTIONS)
def test_options_in_range_are_accepted_and_survive_the_store(options: StartOptions) -> None:
    options.check()
    assert msgspec.json.decode(msgspec.json.encode(options), type=StartOptions) == options


def test_the_defaults_are_accepted_and_take_no_room() -> None:
    StartOptions().check()
    assert StartOptions().priority == 100
    assert msgspec.json.encode(StartOptions()) == b"{}"


def test_defaults_are_not_shared() -> None:
    one = StartOptions()
    one.tags["a"] = "b"
    assert StartOptions().tags == {}


@pytest.mark.parametrize("priority", [0, 1, 1_000_000])
def test_the_ends_of_the_priorities_are_accepted(priority: int) -> None:
    StartOptions(priority=priority).check()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("priority", value) for value in (-1, 1_000_001, 1.0, "5", None, True)],
        *[
            (option, value)
            for option in ("tags", "baggage")
            for value in (
                {"a": 1},
                {1: "a"},
                {"a": None},
                {"a": "\ud800"},
                {"\ud800": "a"},
                MappingProxyType({"a": "b"}),
                [("a", "b")],
                "ab",
                None,
            )
        ],
        ("not_before", datetime(2030, 1, 1)),  # noqa: DTZ001 - what is refused
        ("not_before", "2030-01-01T00:00:00Z"),
        ("not_before", 5),
        ("not_before", datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))),
    ],
)
def test_an_option_out_of_range_is_refused_by_name(option: str, value: Any) -> None:
    options = StartOptions(**{option: value})
    with pytest.raises(InvalidArgument, match=f"^option {option} is ") as caught:
        options.check()
    assert repr(value) in str(caught.value)


def test_options_do_not_change() -> None:
    with pytest.raises(AttributeError):
        StartOptions().priority = 1  # type: ignore[misc]


# -- records ----------------------------------------------------------------------------------


@given(
    eid=st.uuids(),
    seed=st.binary(min_size=16, max_size=16),
    created_at=st.integers(0, 10**16),
    options=OPTIONS,
    key=st.none() | TEXT,
)
def test_a_record_survives_the_store(
    *, eid: UUID, seed: bytes, created_at: int, options: StartOptions, key: str | None
) -> None:
    record = Execution(
        eid=eid,
        workflow="pay",
        version="1",
        args=Raw(b'[[1],{"a":null}]'),
        seed=seed,
        queue="default",
        created_by=Actor.human("ada@example.com"),
        created_at=created_at,
        options=options,
        dispatch_key=key,
    )
    back = msgspec.json.decode(msgspec.json.encode(record), type=Execution)
    assert bytes(back.args) == bytes(record.args)
    assert msgspec.structs.replace(back, args=record.args) == record


def test_results_are_tuples_with_names() -> None:
    eid = new_eid()
    assert StartResult(eid, deduplicated=True) == (eid, True)
    assert ErrorInfo("ValueError", "odd") == ("ValueError", "odd")
    assert Page((1, 2)).cursor is None


def test_a_queue_task_is_ready_unless_it_says_otherwise() -> None:
    eid, at = new_eid(), datetime(2030, 1, 1, tzinfo=UTC)
    task = QueueTask(f"start:{eid}", "default", START, eid, "start", at)
    assert (task.state, task.key, task.holder, task.not_before) == ("ready", "", None, None)
    assert (START, RESUME) == ("start", "resume")
