"""Waits, mail, kept runners and copied journals: the small parts that a runner is made of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from msgspec import Raw

from perdure.model.entry import (
    ExecutionCancelling,
    ExecutionStarted,
    FrameAbandoned,
    FrameCompleted,
    FrameFailed,
    FrameFulfilled,
    FrameStarted,
    FrameSuspended,
    KnownEntry,
    PackedMessage,
    entry_fid,
)
from perdure.model.memo import MemoTable, fold
from perdure.model.provenance import Actor
from perdure.runtime import forking
from perdure.runtime.frames import Frame
from perdure.runtime.kept import Kept
from perdure.runtime.mailbox import Mailbox
from perdure.runtime.waits import Waits

NOBODY = Actor.system("test")


def frame(
    index: int, *, channel: str = "", deadline: int | None = None, on: str = ""
) -> Frame[Any]:
    """Make a frame that waits."""
    made: Frame[Any] = Frame(f"root/f#{index}", "receive", "f", "")
    made.index, made.channel, made.deadline = index, channel, deadline
    made.on = on or f"on {index}"
    return made


def message(seq: int, channel: str = "x") -> PackedMessage:
    """Make a message."""
    return PackedMessage(seq, channel, Raw(b"null"), NOBODY, 0)


def never(_frame: Frame[Any]) -> bool:
    """Hold no frame."""
    return False


# -- waits -------------------------------------------------------------------------------------


def test_ready_are_those_with_mail_or_due_in_the_order_of_their_calls() -> None:
    waits = Waits()
    frames = [
        frame(0, deadline=50),
        frame(1, channel="x"),
        frame(2, channel="x", deadline=10),
        frame(3, channel="y"),
        frame(4, channel="x"),
    ]
    for one in frames:
        waits.add(one)
    assert [f.index for f in waits.ready([("x", 2), ("z", 9)], 5)] == [1, 2]
    assert [f.index for f in waits.ready([("y", 1)], 60)] == [0, 2, 3]
    waits.remove(frames[1])
    assert [f.index for f in waits.ready([("x", 1)], 60)] == [0, 2]
    assert frames[1] not in waits
    waits.remove(frames[1])


def test_what_is_due_and_was_not_served_is_due_again() -> None:
    waits = Waits()
    waits.add(frame(0, deadline=10))
    assert [f.index for f in waits.ready([], 10)] == [0]
    assert [f.index for f in waits.ready([], 10)] == [0]
    assert waits.ready([], 9) == []


def test_a_frame_that_waits_again_waits_for_its_new_instant() -> None:
    """A step that is retried waits once for each delay."""
    waits, again = Waits(), frame(0, deadline=10)
    waits.add(again)
    waits.remove(again)
    again.deadline = 99
    waits.add(again)
    assert waits.next_due(never) == 99
    assert waits.ready([], 50) == []
    assert [f.deadline for f in waits.earliest(5)] == [99]


def test_the_next_due_is_that_of_a_frame_that_is_not_held() -> None:
    waits = Waits()
    for index, deadline in enumerate((10, 20, 30, None)):
        waits.add(frame(index, deadline=deadline))
    assert waits.next_due(never) == 10
    assert waits.next_due(lambda held: held.index < 2) == 30
    assert waits.next_due(lambda _: True) is None
    assert Waits().next_due(never) is None


def test_lists_are_bounded_and_ordered() -> None:
    waits = Waits()
    for index in range(20):
        waits.add(frame(index, deadline=100 - index))
    assert [f.index for f in waits.first(3)] == [0, 1, 2]
    assert [f.deadline for f in waits.earliest(3)] == [81, 82, 83]


def test_only_what_the_journal_lacks_is_unmarked() -> None:
    waits, new, old = Waits(), frame(0), frame(1)
    old.suspended = old.on
    waits.add(new)
    waits.add(old)
    assert list(waits.unmarked) == [new.fid]
    waits.mark()
    assert (waits.unmarked, new.suspended) == ({}, new.on)


def test_global_channels_are_known_as_long_as_somebody_waits() -> None:
    waits = Waits()
    pair = [frame(n, channel="channel:news", on="channel:news") for n in range(2)]
    for one in (*pair, frame(2, channel="own", on="channel:eid.own")):
        waits.add(one)
    assert waits.global_channels == ["channel:news"]
    waits.remove(pair[0])
    assert waits.global_channels == ["channel:news"]
    waits.remove(pair[1])
    assert waits.global_channels == []


# -- mail --------------------------------------------------------------------------------------


def test_messages_are_taken_once_and_in_order() -> None:
    table = MemoTable(consumed={"x": 1})
    mailbox = Mailbox(table)
    for seq in (1, 2, 3, 2):
        mailbox.accept("x", message(seq))
    assert dict(mailbox.unread()) == {"x": 2}
    taken = [mailbox.take("x") for _ in range(3)]
    assert [one and one.seq for one in taken] == [2, 3, None]
    mailbox.accept("x", message(3))
    assert mailbox.take("x") is None
    assert (mailbox.consumed("x"), mailbox.consumed("y")) == (3, 0)


def test_what_was_given_back_is_taken_first() -> None:
    table = MemoTable(consumed={"x": 2}, returned={("x", 1): message(1)})
    mailbox = Mailbox(table)
    mailbox.accept("x", message(3))
    assert mailbox.returned == (("x", 1),)
    first = mailbox.take("x")
    assert first is not None
    assert first.seq == 1
    assert not mailbox.returned
    mailbox.put_back("x", first)
    assert mailbox.returned == (("x", 1),)
    assert [one.seq for one in (mailbox.take("x"), mailbox.take("x")) if one] == [1, 3]


# -- kept --------------------------------------------------------------------------------------


class Rested(SimpleNamespace):
    """What stands for a runner that rests."""

    def discard(self) -> None:
        self.discarded = True


def rested(epoch: int = 1, eid: UUID | None = None, size: int = 1) -> Any:
    """Make a runner that rests."""
    return Rested(eid=eid or uuid4(), epoch=epoch, size=size, discarded=False)


def test_the_one_that_was_kept_longest_goes_first() -> None:
    kept = Kept(2)
    runners = [rested(number) for number in range(3)]
    for runner in runners:
        kept.add(cast("Any", runner))
    assert [runner.discarded for runner in runners] == [True, False, False]
    assert kept.epochs == {runner.eid: runner.epoch for runner in runners[1:]}
    taken: Any = kept.take(runners[1].eid)
    assert taken is runners[1]
    assert kept.take(taken.eid) is None
    kept.clear()
    assert [runner.discarded for runner in runners] == [True, False, True]


def test_a_later_one_of_the_same_execution_takes_the_place() -> None:
    kept, eid = Kept(5), uuid4()
    first, second = rested(1, eid), rested(2, eid)
    kept.add(cast("Any", first))
    kept.add(cast("Any", second))
    assert (first.discarded, second.discarded, kept.epochs) == (True, False, {eid: 2})


def test_large_executions_take_the_room_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.runtime.kept.FRAMES_MAX", 100)
    kept = Kept(1_000)
    runners = [rested(size=size) for size in (10, 60, 50, 101)]
    for runner in runners[:3]:
        kept.add(cast("Any", runner))
    assert [runner.discarded for runner in runners[:3]] == [True, True, False]
    kept.take(runners[2].eid)
    kept.add(cast("Any", runners[0]))
    kept.add(cast("Any", runners[3]))
    assert (runners[3].discarded, kept.epochs) == (True, {})


def test_nothing_is_kept_if_that_is_set_so() -> None:
    kept, runner = Kept(0), rested()
    kept.add(cast("Any", runner))
    assert (runner.discarded, kept.epochs) == (True, {})


# -- forks -------------------------------------------------------------------------------------


def step(fid: str) -> list[KnownEntry]:
    """Give the entries of a step that completed."""
    return [FrameStarted(1, fid, 1, "step", "f", "d"), FrameCompleted(1, fid, 1, Raw(b"1"))]


def receive(fid: str, seq: int) -> list[KnownEntry]:
    """Give the entries of a receive."""
    on = "channel:origin.x"
    return [
        FrameStarted(1, fid, 1, "receive", "r", "d"),
        FrameSuspended(1, fid, 1, on),
        FrameFulfilled(1, fid, 1, on, message(seq)),
    ]


ORIGIN = UUID(int=7)


def fids(entries: list[KnownEntry]) -> list[str]:
    """Give the frames of copied entries, without what says that they were copied."""
    return [entry_fid(entry) for entry in entries[1:]]


def test_a_fork_keeps_the_frames_that_had_ended() -> None:
    journal: list[KnownEntry] = [
        ExecutionStarted(1, Raw(b"[[],{}]")),
        *step("root/a#0"),
        FrameStarted(1, "root/b#0", 1, "step", "f", "d"),
        FrameFailed(1, "root/b#0", 1, "E", "m", retryable=True, retry_at=5),
        *receive("root/r#0", 4),
        *step("root/c#0"),
        FrameCompleted(1, "root/b#0", 2, Raw(b"2")),
    ]
    forked = forking.forked(ORIGIN, journal, "root/c#0", {}, 9)
    assert fids(forked) == ["root/a#0"] * 2 + ["root/r#0"] * 3
    assert forking.consumed(forked) == {"x": 4}
    assert fids(forking.forked(ORIGIN, journal, "root", {}, 9)) == []


def test_a_fork_is_as_it_was_before_a_cancel() -> None:
    journal: list[KnownEntry] = [
        *step("root/a#0"),
        ExecutionCancelling(1, NOBODY),
        *step("root/undo#0"),
        *step("root/last#0"),
    ]
    assert fids(forking.forked(ORIGIN, journal, "root/last#0", {}, 9)) == ["root/a#0"] * 2


def test_an_override_stands_in_the_place_of_what_was() -> None:
    journal = [*step("root/a#0"), *step("root/b#0"), *step("root/c#0")]
    given = {"root/a#0": Raw(b"5"), "root/c#0": Raw(b'"x"')}
    forked = forking.forked(ORIGIN, journal, "root/b#0", given, 9)
    table = fold(forked)
    assert {fid: bytes(value) for fid, value in table.memos.items()} == {
        "root/a#0": b"5",
        "root/c#0": b'"x"',
    }
    assert {started.digest for started in table.started.values()} == {""}


@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_retry_keeps_everything_but_the_last_failure(*, at_the_end: bool) -> None:
    failed: list[KnownEntry] = [
        FrameStarted(1, "root/bad#0", 1, "step", "f", "d"),
        FrameFailed(1, "root/bad#0", 1, "E", "m", retryable=True),
        FrameFailed(1, "root/bad#0", 2, "E", "m", retryable=False),
    ]
    after = [] if at_the_end else [FrameAbandoned(1, "root/r#0", "why"), *step("root/undo#0")]
    journal = [*step("root/a#0"), *failed[:1], *step("root/b#0"), *failed[1:], *after]
    assert fids(forking.retried(ORIGIN, journal, 9)) == ["root/a#0"] * 2 + ["root/b#0"] * 2


def test_a_retry_without_a_failure_keeps_everything() -> None:
    journal = [*step("root/a#0"), *receive("root/r#0", 1)]
    assert fids(forking.retried(ORIGIN, journal, 9)) == ["root/a#0"] * 2 + ["root/r#0"] * 3
