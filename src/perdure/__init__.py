"""perdure: a durable workflow engine for Python. These are the public names, and nothing else."""

from __future__ import annotations

from perdure.errors import (
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
from perdure.model.entry import Entry
from perdure.model.execution import (
    ErrorInfo,
    ExecutionRow,
    ExecutionStatus,
    FrameNode,
    FrameRef,
    LeaseInfo,
    Page,
    StartOptions,
    StartResult,
)
from perdure.model.ids import reply_channel
from perdure.model.message import Message
from perdure.model.provenance import Actor, Code, Provenance, Site
from perdure.model.retry import RetryPolicy
from perdure.model.review import Decision
from perdure.runtime.attempt import StepInfo, step_info
from perdure.runtime.code.context import Context
from perdure.runtime.config import EngineConfig
from perdure.runtime.consumer import Consumer, DelegateTask, Held
from perdure.runtime.engine import Engine
from perdure.runtime.registry import Registry
from perdure.runtime.values import PayloadCodec
from perdure.runtime.worker import Worker
from perdure.wiring import open  # noqa: A004 - `perdure.open` is the name that users know

__version__ = "0.1.0"

__all__ = [
    "Actor",
    "AlreadyClosed",
    "Cancelled",
    "ChildFailed",
    "Code",
    "Conflict",
    "Consumer",
    "Context",
    "Decision",
    "DelegateTask",
    "DuplicateFrameError",
    "DuplicateRegistration",
    "Engine",
    "EngineConfig",
    "Entry",
    "ErrorInfo",
    "ExecutionCancelled",
    "ExecutionFailed",
    "ExecutionRow",
    "ExecutionStatus",
    "ExecutionTerminated",
    "ForeignAwait",
    "ForeignFrame",
    "FrameNode",
    "FrameRef",
    "Held",
    "InvalidArgument",
    "InvalidName",
    "LeaseInfo",
    "LeaseLost",
    "Message",
    "NonRetryableError",
    "NondeterminismError",
    "NotFound",
    "NotSerializable",
    "Page",
    "PayloadCodec",
    "PayloadTooLarge",
    "PayloadUnreadable",
    "PayloadUnwritable",
    "PerdureError",
    "Provenance",
    "Registry",
    "RetryPolicy",
    "SchemaTooNew",
    "Site",
    "StartOptions",
    "StartResult",
    "StepFailed",
    "StepInfo",
    "StepTimeout",
    "StoreUnavailable",
    "UnknownExecution",
    "UnknownFrame",
    "UnknownReview",
    "UnknownWorkflow",
    "WaitTimeout",
    "Worker",
    "open",
    "reply_channel",
    "step_info",
]
