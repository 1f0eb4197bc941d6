"""Errors: one tree, drawn as it is, the facts as attributes, and what to do in the text."""

from __future__ import annotations

import inspect
import re
from typing import Any
from uuid import UUID

import pytest

from perdure import errors
from perdure.errors import (
    Abandoned,
    AlreadyClosed,
    Cancelled,
    ChildFailed,
    Conflict,
    DuplicateFrameError,
    DuplicateRegistration,
    ExecutionCancelled,
    ExecutionFailed,
    ExecutionTerminated,
    ForeignAwait,
    ForeignFrame,
    InvalidArgument,
    InvalidName,
    LeaseLost,
    NondeterminismError,
    NonRetryableError,
    NotFound,
    NotSerializable,
    PayloadTooLarge,
    PayloadUnreadable,
    PayloadUnwritable,
    PerdureError,
    SchemaTooNew,
    StepFailed,
    StepTimeout,
    StoreUnavailable,
    UnknownExecution,
    UnknownFrame,
    UnknownReview,
    UnknownWorkflow,
    WaitTimeout,
)

EID = UUID("0190163d-8694-7390-8a1c-2f0f1c0a7b11")

CLASSES: list[type[BaseException]] = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, BaseException) and value.__module__ == errors.__name__
]

# An error, its facts, what its text must contain.
CASES: list[tuple[BaseException, dict[str, Any], list[str]]] = [
    (
        InvalidName("channel", "a b", "[a-z]+"),
        {"what": "channel", "value": "a b", "pattern": "[a-z]+"},
        ["channel 'a b'", "must match [a-z]+"],
    ),
    (
        NotSerializable("root/f#0", "$.a", "is nan"),
        {"where": "root/f#0", "path": "$.a"},
        ["root/f#0", "$.a is nan", "pass plain JSON types"],
    ),
    (
        UnknownWorkflow("pay", "2", ("1", "3")),
        {"workflow": "pay", "version": "2", "known": ("1", "3")},
        ["workflow 'pay' version '2'", "registered versions are 1, 3", "register it"],
    ),
    (
        UnknownWorkflow("pay", None),
        {"workflow": "pay", "version": None, "known": ()},
        ["workflow 'pay' is not registered", "the name is unknown", "check the name"],
    ),
    (
        DuplicateRegistration("pay", "1"),
        {"name": "pay", "version": "1"},
        ["workflow 'pay' version '1'", "give the new function another version"],
    ),
    (
        DuplicateRegistration("charge"),
        {"name": "charge", "version": None},
        ["step 'charge'", "give the new function another name"],
    ),
    (
        LeaseLost("delegate:x", "agent"),
        {"task_id": "delegate:x", "holder": "agent"},
        ["'agent' does not hold task delegate:x", "nothing was written", "stop the work"],
    ),
    (
        PayloadTooLarge("root/f#0", 20_000_000, 16_777_216),
        {"where": "root/f#0", "size": 20_000_000, "limit": 16_777_216},
        ["root/f#0: 20,000,000 bytes", "16,777,216", "pass a reference"],
    ),
    (
        PayloadUnreadable("root/f#0", "no codec is configured here"),
        {"where": "root/f#0", "reason": "no codec is configured here"},
        ["root/f#0: it was encoded by a PayloadCodec", "EngineConfig(codec=…)"],
    ),
    (
        PayloadUnwritable("root/f#0", "OSError: no keys"),
        {"where": "root/f#0", "reason": "OSError: no keys"},
        ["root/f#0: the PayloadCodec could not encode", "OSError: no keys", "see to the codec"],
    ),
    (UnknownReview("r"), {"rid": "r"}, ["no review has the id 'r'", "perdure reviews list"]),
    (UnknownExecution(EID), {"eid": EID}, [str(EID), "check the id and the store URL"]),
    (UnknownExecution("xyz"), {"eid": "xyz"}, ["xyz"]),
    (
        UnknownFrame(EID, "root/f#7"),
        {"eid": EID, "fid": "root/f#7"},
        [str(EID), "no frame 'root/f#7'", "--frames"],
    ),
    (
        ChildFailed(EID, "cancelled", "ExecutionCancelled", "by human:a@b.c"),
        {
            "eid": EID,
            "status": "cancelled",
            "error_type": "ExecutionCancelled",
            "message": "by human:a@b.c",
        },
        [f"child execution {EID} is cancelled: ExecutionCancelled: by human:a@b.c"],
    ),
    (
        ExecutionCancelled(EID, "by human:a@b.c: why"),
        {"eid": EID, "reason": "by human:a@b.c: why"},
        [f"execution {EID} was cancelled by human:a@b.c: why"],
    ),
    (
        ExecutionTerminated(EID, "by human:a@b.c"),
        {"eid": EID, "reason": "by human:a@b.c"},
        [f"execution {EID} was terminated by human:a@b.c"],
    ),
    (
        AlreadyClosed(EID, "completed"),
        {"eid": EID, "status": "completed"},
        [str(EID), "completed", "nothing was stored", "start another execution"],
    ),
    (
        DuplicateFrameError("root/f:k"),
        {"fid": "root/f:k"},
        ["root/f:k", "give each frame of that name its own key"],
    ),
    (
        StepFailed("root/f#0", "ValueError", "odd", 3, "trace"),
        {
            "fid": "root/f#0",
            "error_type": "ValueError",
            "message": "odd",
            "attempts": 3,
            "traceback": "trace",
        },
        ["step root/f#0 failed after 3 attempts: ValueError: odd"],
    ),
    (
        StepFailed("root/f#0", "ValueError", "odd", 1),
        {"attempts": 1, "traceback": None},
        ["failed after 1 attempt: ValueError: odd"],
    ),
    (
        StepTimeout("root/f#0", 1.5),
        {"fid": "root/f#0", "timeout_s": 1.5},
        ["root/f#0", "within 1.5 s", "give it more time"],
    ),
    (
        ExecutionFailed(EID, "ValueError", "odd"),
        {"eid": EID, "error_type": "ValueError", "message": "odd"},
        [f"execution {EID} failed: ValueError: odd"],
    ),
    (
        WaitTimeout(EID, 10),
        {"eid": EID, "timeout_s": 10},
        [str(EID), "within 10 s", "it goes on", "wait for it again"],
    ),
    (
        NondeterminismError("root/f#0", "the step has other arguments"),
        {"fid": "root/f#0", "difference": "the step has other arguments"},
        ["frame root/f#0: the step has other arguments", "restore it", "another version"],
    ),
    (
        ForeignAwait("asyncio.sleep"),
        {"awaited": "asyncio.sleep"},
        ["awaited asyncio.sleep", "into a step function", "await ctx.step(function, ...)"],
    ),
    (
        ForeignFrame("sleep"),
        {"method": "sleep"},
        ["ctx.sleep was called inside a step", "return the value from the step"],
    ),
    (
        SchemaTooNew("sqlite:///a.db", 9, 2),
        {"url": "sqlite:///a.db", "found": 9, "supported": 2},
        ["sqlite:///a.db has schema version 9", "up to 2", "upgrade perdure"],
    ),
]
BASES = (
    PerdureError,
    InvalidArgument,
    NotFound,
    Conflict,
    NonRetryableError,
    StoreUnavailable,
    Abandoned,
    Cancelled,
)


@pytest.mark.parametrize(
    ("error", "facts", "texts"), CASES, ids=[type(error).__name__ for error, _, _ in CASES]
)
def test_an_error_has_its_facts_and_says_what_to_do(
    error: BaseException, facts: dict[str, Any], texts: list[str]
) -> None:
    assert {name: getattr(error, name) for name in facts} == facts
    for text in texts:
        assert text in str(error)
    assert "\n" not in str(error)


def test_every_class_is_tested_here() -> None:
    assert {type(error) for error, _, _ in CASES} | set(BASES) == set(CLASSES)


@pytest.mark.parametrize("kind", BASES)
def test_errors_without_facts_carry_their_text(kind: type[BaseException]) -> None:
    assert str(kind("what happened")) == "what happened"


def test_every_attribute_is_named_by_its_parameter() -> None:
    for error, _, _ in CASES:
        parameters = set(inspect.signature(type(error).__init__).parameters) - {"self"}
        assert parameters - {"reason"} <= set(vars(error)), type(error)


def test_the_tree_is_drawn_as_it_is() -> None:
    drawn: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.getdoc(errors).splitlines():  # type: ignore[union-attr]
        match = re.match(r"([│├└─ ]*)([A-Z]\w+)(\s{2,}.*)?$", line)
        if match is None:
            continue
        depth = len(match[1]) // 4
        above = [*above[:depth], match[2]]
        if depth:
            drawn[match[2]] = above[-2]
    parents = {kind.__name__: kind.__bases__[0].__name__ for kind in CLASSES}
    assert parents.pop("PerdureError") == "Exception"
    assert drawn == parents


def test_what_stops_a_function_cannot_be_swallowed_by_accident() -> None:
    stops = {Abandoned, Cancelled}
    assert not any(issubclass(kind, Exception) for kind in stops)
    assert all(issubclass(kind, PerdureError) for kind in CLASSES if kind not in stops)


def test_every_class_says_what_it_is() -> None:
    assert all(kind.__doc__ for kind in CLASSES)
