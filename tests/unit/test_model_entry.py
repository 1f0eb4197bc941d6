"""Entries: what is packed comes back, also to an older reader, and readers get named facts."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from perdure.model.entry import (
    AnyEntry,
    ExecutionCancelled,
    ExecutionCancelling,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionForked,
    ExecutionMigrated,
    ExecutionResumed,
    ExecutionStarted,
    ExecutionSuspended,
    ExecutionTerminated,
    FrameAbandoned,
    FrameCompleted,
    FrameFailed,
    FrameFulfilled,
    FrameStarted,
    FrameSuspended,
    KnownEntry,
    PackedMessage,
    UnknownEntry,
    entry_fid,
    entry_type,
    fill,
    pack,
    payload,
    unpack,
)
from perdure.model.instants import from_us
from perdure.model.message import unpack_message
from perdure.model.provenance import Actor
from tests.unit.strategies import JSON, TEXT

# The entry types and the facts that each states: those that are always there, and the others.
FACTS: dict[type, tuple[str, set[str], set[str]]] = {
    ExecutionStarted: ("execution.started", {"args"}, set()),
    ExecutionResumed: ("execution.resumed", {"reason"}, set()),
    ExecutionSuspended: ("execution.suspended", {"on"}, {"reason"}),
    ExecutionCancelling: ("execution.cancelling", {"by"}, {"reason"}),
    ExecutionMigrated: ("execution.migrated", {"from_version", "version"}, set()),
    ExecutionForked: ("execution.forked", {"origin", "fid", "overrides"}, set()),
    ExecutionCompleted: ("execution.completed", {"value"}, {"continued_as"}),
    ExecutionCancelled: ("execution.cancelled", {"by"}, {"reason"}),
    ExecutionTerminated: ("execution.terminated", {"by"}, {"reason"}),
    ExecutionFailed: ("execution.failed", {"error_type", "message"}, {"traceback"}),
    FrameStarted: ("frame.started", {"attempt", "kind", "name", "digest"}, {"deadline"}),
    FrameCompleted: ("frame.completed", {"attempt", "value"}, set()),
    FrameFailed: (
        "frame.failed",
        {"attempt", "error_type", "message", "retryable"},
        {"retry_at", "traceback"},
    ),
    FrameSuspended: ("frame.suspended", {"attempt", "on"}, {"deadline"}),
    FrameFulfilled: ("frame.fulfilled", {"attempt", "on"}, {"message"}),
    FrameAbandoned: ("frame.abandoned", {"reason"}, set()),
}
INSTANTS = ("deadline", "retry_at")

US = st.integers(0, 10**15)
RAWS = JSON.map(lambda value: Raw(msgspec.json.encode(value)))
ACTORS = st.emails().map(Actor.human) | TEXT.filter(bool).map(Actor.system)
MESSAGES = st.builds(
    PackedMessage, st.integers(1), TEXT, RAWS, ACTORS, US, correlation=st.none() | TEXT
)
BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    "int": US,
    "str": TEXT,
    "bool": st.booleans(),
    "Raw": RAWS,
    "Actor": ACTORS,
    "dict[str, Any]": st.dictionaries(TEXT, JSON, max_size=2),
    "int | None": st.none() | US,
    "str | None": st.none() | TEXT,
    "tuple[str, ...]": st.lists(TEXT, max_size=3).map(tuple),
    "PackedMessage | None": st.none() | MESSAGES,
}


def entries_of(kind: type) -> st.SearchStrategy[Any]:
    """Every value that an entry of one type can have."""
    hints = {
        name: hint
        for base in reversed(kind.__mro__)
        for name, hint in getattr(base, "__annotations__", {}).items()
    }
    return st.builds(kind, **{name: BY_TYPE[hint] for name, hint in hints.items()})


KINDS: tuple[Any, ...] = get_args(KnownEntry)
ENTRIES: st.SearchStrategy[Any] = st.sampled_from(KINDS).flatmap(entries_of)
EACH_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def plain(value: Any) -> Any:
    """An entry as values that can be compared; `Raw` compares by identity."""
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, msgspec.Struct):
        return type(value), [plain(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


# -- pack and unpack --------------------------------------------------------------------------


def test_the_table_names_every_entry_type() -> None:
    assert set(FACTS) == set(KINDS)


@EACH_KIND
@given(data=st.data())
def test_an_entry_comes_back_as_it_was_packed(kind: type, data: st.DataObject) -> None:
    entry = data.draw(entries_of(kind))
    (back,) = unpack(pack([entry]))
    assert type(back) is kind
    assert plain(back) == plain(entry)


@given(entries=st.lists(ENTRIES))
def test_a_row_keeps_its_entries_in_order(entries: list[KnownEntry]) -> None:
    assert plain(unpack(pack(entries))) == plain(entries)


# Rows as they stand in stores today: they must be read, and written the same, for ever.
RECORDED: list[tuple[bytes, KnownEntry]] = [
    (b'["execution.started",7,[[1],{}]]', ExecutionStarted(7, Raw(b"[[1],{}]"))),
    (b'["execution.resumed",7,"timer"]', ExecutionResumed(7, "timer")),
    (b'["execution.suspended",7,["a","b"],null]', ExecutionSuspended(7, ("a", "b"))),
    (
        b'["execution.cancelling",7,{"kind":"system","id":"s"},"why"]',
        ExecutionCancelling(7, Actor.system("s"), "why"),
    ),
    (b'["execution.migrated",7,"1","2"]', ExecutionMigrated(7, "1", "2")),
    (
        b'["execution.forked",7,"e","root/f#0",{"root/g#0":1}]',
        ExecutionForked(7, "e", "root/f#0", {"root/g#0": 1}),
    ),
    (b'["execution.completed",7,null,"e"]', ExecutionCompleted(7, Raw(b"null"), "e")),
    (
        b'["execution.cancelled",7,{"kind":"system","id":"s"},null]',
        ExecutionCancelled(7, Actor.system("s")),
    ),
    (
        b'["execution.terminated",7,{"kind":"system","id":"s"},"why"]',
        ExecutionTerminated(7, Actor.system("s"), "why"),
    ),
    (
        b'["execution.failed",7,"ValueError","odd","trace"]',
        ExecutionFailed(7, "ValueError", "odd", "trace"),
    ),
    (
        b'["frame.started",7,"root/f#0",1,"step","f","d",9]',
        FrameStarted(7, "root/f#0", 1, "step", "f", "d", 9),
    ),
    (
        b'["frame.completed",7,"root/f#0",1,{"a":1}]',
        FrameCompleted(7, "root/f#0", 1, Raw(b'{"a":1}')),
    ),
    (
        b'["frame.failed",7,"root/f#0",1,"E","m",true,9,null]',
        FrameFailed(7, "root/f#0", 1, "E", "m", retryable=True, retry_at=9),
    ),
    (
        b'["frame.suspended",7,"root/f#0",1,"timer:root/f#0",9]',
        FrameSuspended(7, "root/f#0", 1, "timer:root/f#0", 9),
    ),
    (
        (
            b'["frame.fulfilled",7,"root/r#0",1,"channel:x",'
            b'[3,"x",null,{"kind":"system","id":"s"},6,"c"]]'
        ),
        FrameFulfilled(
            7,
            "root/r#0",
            1,
            "channel:x",
            PackedMessage(3, "x", Raw(b"null"), Actor.system("s"), 6, "c"),
        ),
    ),
    (
        b'["frame.abandoned",7,"root/f#0","gather failed"]',
        FrameAbandoned(7, "root/f#0", "gather failed"),
    ),
]


def test_every_entry_type_is_recorded() -> None:
    assert {type(entry) for _, entry in RECORDED} == set(KINDS)


@pytest.mark.parametrize(
    ("row", "entry"), RECORDED, ids=[type(entry).__name__ for _, entry in RECORDED]
)
def test_the_form_in_the_store_does_not_change(row: bytes, entry: KnownEntry) -> None:
    assert pack([entry]) == b"[" + row + b"]"
    assert plain(unpack(b"[" + row + b"]")) == plain([entry])


@EACH_KIND
@given(data=st.data())
def test_fields_that_a_newer_version_added_are_skipped(kind: type, data: st.DataObject) -> None:
    entry = data.draw(entries_of(kind))
    added = data.draw(st.lists(JSON, min_size=1, max_size=3))
    (packed,) = msgspec.json.decode(pack([entry]))
    (back,) = unpack(msgspec.json.encode([[*packed, *added]]))
    assert plain(back) == plain(entry)


@EACH_KIND
@given(data=st.data())
def test_optional_fields_that_an_older_version_lacked_are_absent(
    kind: type, data: st.DataObject
) -> None:
    entry = data.draw(entries_of(kind))
    (packed,) = msgspec.json.decode(pack([entry]))
    optional = len(FACTS[kind][2])
    (back,) = unpack(msgspec.json.encode([packed[: len(packed) - optional]]))
    assert set(payload(back)) == FACTS[kind][1]


@given(message=MESSAGES, added=JSON)
def test_a_message_of_a_newer_version_is_read_too(message: PackedMessage, added: Any) -> None:
    entry = FrameFulfilled(1, "root/r#0", 1, "channel:x", message)
    (packed,) = msgspec.json.decode(pack([entry]))
    packed[-1].append(added)
    (back,) = unpack(msgspec.json.encode([packed]))
    assert plain(back) == plain(entry)


# -- what this version does not know ----------------------------------------------------------

UNKNOWN_TYPES = TEXT.filter(lambda name: name not in {name for name, _, _ in FACTS.values()})


@given(
    before=st.lists(ENTRIES, max_size=2),
    after=st.lists(ENTRIES, max_size=2),
    kind=UNKNOWN_TYPES,
    fields=st.lists(JSON, max_size=3),
)
def test_an_entry_of_an_unknown_type_is_kept_in_its_place(
    before: list[KnownEntry], after: list[KnownEntry], kind: str, fields: list[Any]
) -> None:
    packed = [
        *msgspec.json.decode(pack(before)),
        [kind, *fields],
        *msgspec.json.decode(pack(after)),
    ]
    entries = unpack(msgspec.json.encode(packed))
    position = len(before)
    unknown = entries.pop(position)
    assert isinstance(unknown, UnknownEntry)
    assert (unknown.type, list(unknown.fields)) == (kind, fields)
    assert plain(entries) == plain([*before, *after])


def test_an_unknown_entry_can_be_shown() -> None:
    (entry,) = unpack(b'[["frame.cloned", 1700000000000000, "root/f#0", {"by": "x"}]]')
    assert entry == UnknownEntry(
        "frame.cloned", (1_700_000_000_000_000, "root/f#0", {"by": "x"}), 1_700_000_000_000_000
    )
    assert entry_type(entry) == "frame.cloned"
    assert entry_fid(entry) == "root"
    assert payload(entry) == {"fields": [1_700_000_000_000_000, "root/f#0", {"by": "x"}]}


def test_an_unknown_entry_without_an_instant_is_at_zero() -> None:
    assert unpack(b'[["x"], ["y", "text"]]') == [
        UnknownEntry("x", ()),
        UnknownEntry("y", ("text",)),
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[",
        b"{}",
        b"[[]]",
        b"[7]",
        b"[[7, 1]]",
        b"[[null]]",
        b'["frame.completed"]',
        b'[["frame.completed"]]',
        b'[["frame.completed", 1, "root/f#0"]]',
        b'[["frame.completed", "1", "root/f#0", 1, 5]]',
        b'[["frame.completed", 1, "root/f#0", 1, 5], ["frame.completed", 1, 7, 1, 5]]',
        b'[["x", 1], ["frame.failed", 1, "root/f#0", 1, "E", "m", "yes"]]',
        b'[["frame.completed", 1, "root/f#0", 1, 5]',
    ],
)
def test_a_damaged_row_is_an_error_and_no_memo_is_passed_over(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        unpack(body)


def test_memos_are_filled_in_by_the_index_of_their_entries() -> None:
    empty = FrameCompleted(7, "root/send#0", 1, Raw(b"null"))
    body = pack([ExecutionResumed(7, "timer"), empty, empty])
    filled = unpack(fill(body, {2: Raw(b"[true,5]")}))
    expected = [
        ExecutionResumed(7, "timer"),
        empty,
        msgspec.structs.replace(empty, value=Raw(b"[true,5]")),
    ]
    assert plain(filled) == plain(expected)


def test_an_empty_row_holds_nothing() -> None:
    assert unpack(pack([])) == []


# -- what a reader sees -----------------------------------------------------------------------


@EACH_KIND
@given(data=st.data())
def test_the_facts_have_the_names_of_the_table(kind: type, data: st.DataObject) -> None:
    entry = data.draw(entries_of(kind))
    name, always, sometimes = FACTS[kind]
    given_fields = {name for name in sometimes if getattr(entry, name) is not None}
    facts = payload(entry)
    assert set(facts) == always | given_fields
    assert entry_type(entry) == name
    for field, fact in facts.items():
        value = getattr(entry, field)
        if field in INSTANTS:
            assert fact == from_us(value)
        elif isinstance(value, Actor):
            assert fact == msgspec.to_builtins(value)
        elif isinstance(value, Raw):
            assert fact == msgspec.json.decode(value)
        elif isinstance(value, tuple):
            assert fact == list(value)
        elif field != "message":
            assert fact == value


@EACH_KIND
@given(data=st.data())
def test_the_facts_are_json(kind: type, data: st.DataObject) -> None:
    msgspec.json.encode(payload(data.draw(entries_of(kind))))


@given(message=MESSAGES)
def test_the_consumed_message_is_inside(message: PackedMessage) -> None:
    facts = payload(FrameFulfilled(1, "root/r#0", 1, "channel:x", message))
    public = unpack_message(message)
    assert facts["message"] == {
        "seq": message.seq,
        "channel": message.channel,
        "payload": public.payload,
        "sent_by": msgspec.to_builtins(message.sent_by),
        "sent_at": public.sent_by.at,
        "correlation": message.correlation,
    }


@pytest.mark.parametrize("value", [None, 0, False, "", [], {}])
def test_falsy_values_are_facts(value: Any) -> None:
    raw = Raw(msgspec.json.encode(value))
    assert payload(FrameCompleted(1, "root/f#0", 1, raw)) == {"attempt": 1, "value": value}
    assert payload(ExecutionCompleted(1, raw)) == {"value": value}
    failed = FrameFailed(1, "root/f#0", 0, "", "", retryable=False, retry_at=0, traceback="")
    assert payload(failed) == {
        "attempt": 0,
        "error_type": "",
        "message": "",
        "retryable": False,
        "retry_at": from_us(0),
        "traceback": "",
    }
    assert payload(ExecutionSuspended(1, ())) == {"on": []}


@pytest.mark.parametrize(
    ("entry", "fid"),
    [
        (FrameAbandoned(1, "root/f:key", "x"), "root/f:key"),
        (FrameCompleted(1, "root/f#0", 1, Raw(b"1")), "root/f#0"),
        (ExecutionResumed(1, "timer"), "root"),
        (ExecutionCompleted(1, Raw(b"1")), "root"),
        (UnknownEntry("frame.x", (1, "root/f#0")), "root"),
    ],
)
def test_an_entry_belongs_to_its_frame_or_to_the_root(entry: AnyEntry, fid: str) -> None:
    assert entry_fid(entry) == fid


# -- messages ---------------------------------------------------------------------------------


@given(message=MESSAGES)
def test_a_public_message_has_its_payload_and_its_provenance(message: PackedMessage) -> None:
    public = unpack_message(message)
    assert (public.seq, public.channel) == (message.seq, message.channel)
    assert public.payload == msgspec.json.decode(message.payload)
    assert public.correlation == message.correlation
    assert public.actor == public.sent_by.actor == message.sent_by
    assert public.sent_by.at == from_us(message.sent_at)
    assert (public.sent_by.site, public.sent_by.code, public.sent_by.attempt) == (None, None, 0)


@pytest.mark.parametrize("value", [None, 0, False, "", [], {}])
def test_an_empty_message_is_a_message(value: Any) -> None:
    packed = PackedMessage(1, "x", Raw(msgspec.json.encode(value)), Actor.system("s"), 0)
    assert unpack_message(packed).payload == value
