"""The fold of waits: what a frame waits on, what ends it, and which messages are consumed."""

from __future__ import annotations

from perdure.model.entry import FrameAbandoned, FrameFulfilled, FrameSuspended, PackedMessage
from perdure.model.memo import fold
from tests.unit.entries import CHANNEL_X, RECEIVE, fulfilled, started

OTHER = "root/receive#1"
GATHER = "gather failed"


def test_a_wait_lasts_until_it_is_fulfilled() -> None:
    table = fold([started(RECEIVE, "receive"), FrameSuspended(1, RECEIVE, 1, CHANNEL_X)])
    assert table.suspended == {RECEIVE: CHANNEL_X}
    entry = fulfilled(RECEIVE, CHANNEL_X, 1)
    fold([entry], table)
    assert table.suspended == {}
    assert table.fulfilled == {RECEIVE: entry}


def test_a_wait_is_fulfilled_once() -> None:
    first, second = fulfilled(RECEIVE, CHANNEL_X, 1), fulfilled(RECEIVE, CHANNEL_X, 2)
    table = fold([started(RECEIVE, "receive"), first, second])
    assert table.fulfilled == {RECEIVE: first}
    assert (table.order, table.consumed) == ([RECEIVE], {"x": 1})


def test_an_abandoned_frame_waits_for_nothing() -> None:
    table = fold(
        [
            started(RECEIVE, "receive"),
            FrameSuspended(1, RECEIVE, 1, CHANNEL_X),
            FrameAbandoned(1, RECEIVE, "gather failed"),
        ]
    )
    assert (table.suspended, table.abandoned, table.order) == ({}, {RECEIVE}, [])


def test_each_channel_is_consumed_on_its_own() -> None:
    table = fold(
        [
            started("root/receive#0", "receive"),
            started("root/receive#1", "receive"),
            started("root/receive#2", "receive"),
            fulfilled("root/receive#0", CHANNEL_X, 1),
            fulfilled("root/receive#2", "channel:e.y", 4, channel="y"),
            fulfilled("root/receive#1", CHANNEL_X, 3),
        ]
    )
    assert table.consumed == {"x": 3, "y": 4}


def test_a_timeout_consumes_nothing() -> None:
    table = fold([started(RECEIVE, "receive", 9), fulfilled(RECEIVE, CHANNEL_X)])
    assert table.consumed == {}
    assert table.order == [RECEIVE]


# -- messages that were consumed for nothing ---------------------------------------------------


def message_of(entry: FrameFulfilled) -> PackedMessage:
    assert entry.message is not None
    return entry.message


def test_a_message_whose_frame_was_abandoned_is_given_back() -> None:
    consumed = fulfilled(RECEIVE, CHANNEL_X, 2)
    table = fold([started(RECEIVE, "receive"), consumed])
    assert table.returned == {}
    fold([FrameAbandoned(1, RECEIVE, GATHER)], table)
    assert table.returned == {("x", 2): message_of(consumed)}
    assert table.consumed == {"x": 2}


def test_a_message_that_was_given_back_is_consumed_by_another_frame() -> None:
    table = fold(
        [
            started(RECEIVE, "receive"),
            started(OTHER, "receive"),
            fulfilled(RECEIVE, CHANNEL_X, 1),
            fulfilled("root/receive#2", CHANNEL_X, 2),
            started("root/receive#2", "receive"),
            fulfilled("root/receive#2", CHANNEL_X, 2),
            FrameAbandoned(1, RECEIVE, GATHER),
            fulfilled(OTHER, CHANNEL_X, 1),
        ]
    )
    assert table.returned == {}
    assert table.consumed == {"x": 2}, "an older message does not turn the channel back"


def test_equal_numbers_on_other_channels_are_other_messages() -> None:
    table = fold(
        [
            started(RECEIVE, "receive"),
            started(OTHER, "receive"),
            fulfilled(RECEIVE, CHANNEL_X, 1),
            FrameAbandoned(1, RECEIVE, GATHER),
            fulfilled(OTHER, "channel:e.y", 1, channel="y"),
        ]
    )
    assert list(table.returned) == [("x", 1)]


def test_without_a_message_nothing_is_given_back() -> None:
    table = fold(
        [
            started(RECEIVE, "receive", 9),
            started(OTHER, "receive"),
            fulfilled(RECEIVE, CHANNEL_X),
            FrameAbandoned(1, RECEIVE, GATHER),
            FrameAbandoned(1, OTHER, GATHER),
        ]
    )
    assert table.returned == {}
