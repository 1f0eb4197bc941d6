"""The fold: one journal gives one table, however it is cut, and the first outcome wins."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from perdure.model.codec import decode
from perdure.model.entry import (
    AnyEntry,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionResumed,
    ExecutionStarted,
    ExecutionSuspended,
    FrameAbandoned,
    FrameCompleted,
    FrameFailed,
    FrameFulfilled,
    FrameStarted,
    FrameSuspended,
    PackedMessage,
    UnknownEntry,
    pack,
    unpack,
)
from perdure.model.memo import MemoTable, fold
from perdure.model.provenance import Actor
from tests.unit.entries import (
    CHANNEL_X,
    RECEIVE,
    SLEEP,
    STEP,
    completed,
    failed,
    fulfilled,
    recovered,
    started,
)


def plain(value: Any) -> Any:
    """A table, or a part of one, as values that can be compared."""
    if isinstance(value, MemoTable):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return [(key, plain(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, Raw):
        return bytes(value)
    if hasattr(value, "__struct_fields__"):
        return type(value), [plain(getattr(value, name)) for name in value.__struct_fields__]
    return value


# -- journals of every shape ------------------------------------------------------------------

FIDS = st.sampled_from([STEP, "root/f#1", "root/f:key", RECEIVE, "root/receive#1", SLEEP])
KINDS = st.sampled_from(["step", "receive", "sleep"])
US = st.integers(0, 100)
ATTEMPTS = st.integers(1, 3)
RAWS = st.sampled_from([Raw(b"null"), Raw(b"0"), Raw(b'""'), Raw(b"[1]"), Raw(b'{"a":1}')])
WAITS = st.sampled_from([CHANNEL_X, "channel:e.y", f"timer:{STEP}"])
MESSAGES = st.builds(
    PackedMessage,
    st.integers(1, 9),
    st.sampled_from(["x", "y"]),
    RAWS,
    st.just(Actor.system("s")),
    US,
)
ENTRIES: st.SearchStrategy[AnyEntry] = st.one_of(
    st.builds(ExecutionStarted, US, RAWS),
    st.builds(ExecutionResumed, US, st.sampled_from(["recovery", "message", "timer", "drain"])),
    st.builds(ExecutionSuspended, US, st.lists(WAITS).map(tuple), st.none() | st.just("blocked")),
    st.builds(ExecutionCompleted, US, RAWS),
    st.builds(ExecutionFailed, US, st.just("E"), st.just("m")),
    st.builds(FrameStarted, US, FIDS, ATTEMPTS, KINDS, st.just("f"), st.text(), st.none() | US),
    st.builds(FrameCompleted, US, FIDS, ATTEMPTS, RAWS),
    st.builds(
        FrameFailed, US, FIDS, ATTEMPTS, st.just("E"), st.text(), st.booleans(), st.none() | US
    ),
    st.builds(FrameSuspended, US, FIDS, ATTEMPTS, WAITS, st.none() | US),
    st.builds(FrameFulfilled, US, FIDS, ATTEMPTS, WAITS, st.none() | MESSAGES),
    st.builds(FrameAbandoned, US, FIDS, st.just("gather failed")),
    st.builds(UnknownEntry, st.just("frame.cloned"), st.tuples(US, FIDS), US),
)
JOURNALS = st.lists(ENTRIES, max_size=40)


@given(journal=JOURNALS, data=st.data())
def test_folding_in_two_parts_is_folding_at_once(
    journal: list[AnyEntry], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(journal)))
    table = fold(journal[:cut])
    assert fold(journal[cut:], table) is table
    assert plain(table) == plain(fold(journal))


@given(journal=JOURNALS)
def test_folding_entry_by_entry_is_folding_at_once(journal: list[AnyEntry]) -> None:
    table = MemoTable()
    for number, entry in enumerate(journal, 1):
        table.apply(entry)
        assert table.tail == number
    assert plain(table) == plain(fold(iter(journal)))


@given(journal=JOURNALS)
def test_the_fold_of_what_a_store_gives_back_is_the_same(journal: list[AnyEntry]) -> None:
    known = [entry for entry in journal if not isinstance(entry, UnknownEntry)]
    assert plain(fold(unpack(pack(known)))) == plain(fold(known))


@given(journal=JOURNALS)
def test_unknown_entries_count_and_change_nothing_else(journal: list[AnyEntry]) -> None:
    known = [entry for entry in journal if not isinstance(entry, UnknownEntry)]
    with_unknown, without = plain(fold(journal)), plain(fold(known))
    assert with_unknown.pop("tail") == len(journal)
    assert without.pop("tail") == len(known)
    assert with_unknown == without


@given(journal=JOURNALS)
def test_the_table_is_what_the_words_for_it_say(journal: list[AnyEntry]) -> None:
    table = fold(journal)
    frames: dict[str, list[Any]] = {}
    for entry in journal:
        if hasattr(entry, "fid"):
            frames.setdefault(entry.fid, []).append(entry)

    def each(kind: type) -> dict[str, list[Any]]:
        found = {
            fid: [entry for entry in entries if type(entry) is kind]
            for fid, entries in frames.items()
        }
        return {fid: entries for fid, entries in found.items() if entries}

    firsts = {fid: entries[0] for fid, entries in each(FrameStarted).items()}
    assert table.started == firsts
    assert table.digests == {fid: first.digest for fid, first in firsts.items()}
    assert table.deadlines == {
        fid: first.deadline for fid, first in firsts.items() if first.deadline is not None
    }
    assert table.memos == {fid: e[0].value for fid, e in each(FrameCompleted).items()}
    assert table.failures == each(FrameFailed)
    assert table.abandoned == set(each(FrameAbandoned))
    assert len(table.order) == len(set(table.order))
    assert set(table.order) == {
        *table.memos,
        *table.fulfilled,
        *(fid for fid, e in table.failures.items() if not all(one.retryable for one in e)),
    }
    assert table.terminal == any(
        isinstance(entry, ExecutionCompleted | ExecutionFailed) for entry in journal
    )
    assert all(started.kind in ("receive", "sleep") for started in _starts_of(table))


def _starts_of(table: MemoTable) -> list[FrameStarted]:
    return [table.started[fid] for fid in table.fulfilled]


@given(journal=JOURNALS, more=JOURNALS)
def test_what_has_an_outcome_keeps_it_and_its_place(
    journal: list[AnyEntry], more: list[AnyEntry]
) -> None:
    table = fold(journal)
    memos, filled, order = dict(table.memos), dict(table.fulfilled), list(table.order)
    fold(more, table)
    assert {fid: table.memos[fid] for fid in memos} == memos
    assert {fid: table.fulfilled[fid] for fid in filled} == filled
    assert table.order[: len(order)] == order


def test_an_empty_journal_gives_an_empty_table() -> None:
    assert fold([]) == MemoTable()
    assert fold([]).tail == 0


# -- outcomes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 0, False, "", [], {}])
def test_a_falsy_memo_is_a_memo(value: Any) -> None:
    table = fold([started(STEP), completed(STEP, value), completed(STEP, "later")])
    assert decode(table.memos[STEP]) == value
    assert table.order == [STEP]


def test_the_first_outcome_wins() -> None:
    table = fold([started(STEP), completed(STEP, "first"), completed(STEP, "second")])
    assert decode(table.memos[STEP]) == "first"
    late: list[AnyEntry] = [failed(STEP, retry=False), completed(STEP, "third")]
    assert fold(late, table).order == [STEP]
    assert decode(table.memos[STEP]) == "first"


def test_two_final_failures_are_one_outcome() -> None:
    table = fold([failed(STEP, retry=False), failed(STEP, 2, retry=False), completed(STEP)])
    assert table.order == [STEP]


def test_outcomes_are_in_the_order_of_the_journal() -> None:
    table = fold(
        [
            started("root/a#0"),
            started("root/b#0"),
            started(RECEIVE, "receive"),
            started(SLEEP, "sleep"),
            failed("root/b#0", retry=True),
            fulfilled(SLEEP, f"timer:{SLEEP}"),
            completed("root/b#0"),
            fulfilled(RECEIVE, CHANNEL_X, 1),
            failed("root/a#0", retry=False),
        ]
    )
    assert table.order == [SLEEP, "root/b#0", RECEIVE, "root/a#0"]


def test_a_failure_that_is_repeated_is_no_outcome() -> None:
    table = fold(
        [started(STEP), failed(STEP, retry=True), started(STEP), failed(STEP, 2, retry=True)]
    )
    assert table.order == []
    assert [failure.attempt for failure in table.failures[STEP]] == [1, 2]


def test_the_first_start_counts() -> None:
    first = FrameStarted(1, SLEEP, 1, "sleep", "f", "one", 10)
    later = FrameStarted(2, SLEEP, 1, "sleep", "g", "two", 99)
    table = fold([first, later])
    assert table.started == {SLEEP: first}
    assert (table.digests, table.deadlines) == ({SLEEP: "one"}, {SLEEP: 10})


def test_a_deadline_of_zero_is_a_deadline() -> None:
    assert fold([started(SLEEP, "sleep", 0), started(RECEIVE, "receive")]).deadlines == {SLEEP: 0}


# -- retries ----------------------------------------------------------------------------------


def test_a_retry_is_due_until_its_wait_is_over() -> None:
    table = fold([started(STEP), failed(STEP, retry=True, at=50)])
    assert table.retry_at == {STEP: 50}
    fold([FrameSuspended(1, STEP, 1, f"timer:{STEP}", 50)], table)
    assert (table.retry_at, table.suspended) == ({STEP: 50}, {STEP: f"timer:{STEP}"})
    fold([fulfilled(STEP, f"timer:{STEP}")], table)
    assert (table.retry_at, table.suspended) == ({}, {})
    assert (table.order, table.fulfilled) == ([], {}), "the end of a back-off is no outcome"


@pytest.mark.parametrize(
    "entry",
    [
        completed(STEP, attempt=2),
        failed(STEP, 2, retry=True),
        failed(STEP, 2, retry=False),
        FrameAbandoned(1, STEP, "gather failed"),
    ],
)
def test_no_retry_is_due_after_what_came_of_the_attempt(entry: AnyEntry) -> None:
    assert fold([failed(STEP, retry=True, at=50), entry]).retry_at == {}


def test_the_last_retry_counts() -> None:
    table = fold([failed(STEP, retry=True, at=50), failed(STEP, 2, retry=True, at=90)])
    assert table.retry_at == {STEP: 90}


def test_a_retry_at_the_epoch_is_a_retry() -> None:
    assert fold([failed(STEP, retry=True, at=0)]).retry_at == {STEP: 0}


# -- recoveries and the end -------------------------------------------------------------------


def test_recoveries_are_counted() -> None:
    assert fold(recovered(3)).recoveries == 3


@pytest.mark.parametrize("reason", ["message", "timer", "drain", "start", "operator"])
def test_no_other_resumption_is_a_recovery(reason: str) -> None:
    entries = [*recovered(2), ExecutionResumed(1, reason), *recovered(1)]
    assert fold(entries).recoveries == 3


@pytest.mark.parametrize(
    "outcome",
    [
        completed(STEP),
        failed(STEP, retry=True),
        failed(STEP, retry=False),
        fulfilled(RECEIVE, CHANNEL_X, 1),
        ExecutionSuspended(1, ("operator",), "recovered too often"),
    ],
)
def test_an_outcome_or_an_operator_begins_the_count_again(outcome: AnyEntry) -> None:
    assert fold([*recovered(3), outcome]).recoveries == 0
    assert fold([*recovered(3), outcome, *recovered(1)]).recoveries == 1


@pytest.mark.parametrize(
    "entry",
    [
        started(STEP),
        ExecutionStarted(1, Raw(b"[[],{}]")),
        ExecutionSuspended(1, (CHANNEL_X,)),
        FrameSuspended(1, RECEIVE, 1, CHANNEL_X),
        FrameAbandoned(1, STEP, "gather failed"),
        UnknownEntry("frame.cloned", (1,)),
    ],
)
def test_nothing_else_begins_it_again(entry: AnyEntry) -> None:
    assert fold([*recovered(3), entry]).recoveries == 3


@pytest.mark.parametrize(
    "end", [ExecutionCompleted(1, Raw(b"null")), ExecutionFailed(1, "ValueError", "odd")]
)
def test_an_end_is_for_ever(end: AnyEntry) -> None:
    assert not fold([started(STEP)]).terminal
    assert fold([end, started(STEP), ExecutionResumed(1, "message")]).terminal
