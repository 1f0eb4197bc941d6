"""What did a person decide? A decision, and how it is kept under the claim of its review."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from perdure.model.provenance import Actor


class Decision(msgspec.Struct, frozen=True):
    """The one decision of a review.

    Attributes:
        rid: the id of the review.
        verdict: what was decided, for example ``"approve"``.
        data: what the person added, a JSON value.
        by: who decided.
        at: when, an aware UTC datetime.
    """

    rid: str
    verdict: str
    data: Any
    by: Actor
    at: datetime


class DecideResult(NamedTuple):
    """What came of deciding a review.

    Attributes:
        decision: the decision that counts.
        first: whether it is the one that was just given; else somebody decided before.
    """

    decision: Decision
    first: bool


class _Kept(msgspec.Struct, frozen=True):
    verdict: str
    data: Any
    decided_by: Actor
    decided_at: datetime


def claim_key(rid: str) -> str:
    """Give the key that whoever decides a review claims."""
    return f"review:{rid}"


def keep(decision: Decision) -> dict[str, Any]:
    """Give a decision as plain JSON: the value of the claim, of the answer, of the announcement."""
    kept = _Kept(decision.verdict, decision.data, decision.by, decision.at)
    plain: dict[str, Any] = msgspec.to_builtins(kept)
    return plain


def recall(rid: str, kept: Any) -> Decision:
    """Give the decision that `keep` made plain.

    Raises:
        msgspec.ValidationError: if it is none.
    """
    found = msgspec.convert(kept, _Kept)
    return Decision(rid, found.verdict, found.data, found.decided_by, found.decided_at)
