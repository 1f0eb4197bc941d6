"""What waits for a person, and who decides it? The inbox, and exactly one decision for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.errors import Conflict, InvalidArgument, UnknownReview
from perdure.model import codec
from perdure.model.ids import is_reply_channel, is_text, parse_task_id
from perdure.model.instants import from_us
from perdure.model.provenance import Actor
from perdure.model.review import DecideResult, Decision, claim_key, keep, recall
from perdure.ports.clock import now_us
from perdure.ports.commands import Announce, Claim, Done, Send, Withdraw
from perdure.runtime import requests
from perdure.runtime.requests import ENGINE

if TYPE_CHECKING:
    from perdure.ports.projection import Review
    from perdure.runtime.engine import Engine

VERDICT_MAX = 200
PAGE = 500


class Reviews:
    """The reviews that workflows have asked for; ``engine.reviews``."""

    def __init__(self, engine: Engine) -> None:
        """Look at the reviews of one engine's store."""
        self._engine = engine

    async def pending(self, queue: str | None = None) -> list[Review]:
        """List the reviews that wait for a decision, oldest first.

        Args:
            queue: only those of this queue.
        """
        projection = self._engine.projection
        found: list[Review] = []
        cursor = None
        while True:
            page = await projection.reviews(
                queue=queue, status="pending", limit=PAGE, cursor=cursor
            )
            found += page.items
            cursor = page.cursor
            if cursor is None:
                return found

    async def decide(
        self, rid: str, *, verdict: str, data: Any = None, by: Actor = ENGINE
    ) -> Decision:
        """Decide a review, unless somebody has decided it before.

        Args:
            rid: the id of the review.
            verdict: what is decided, for example ``"approve"``.
            data: what is to be known of it, any JSON value.
            by: who decides.

        Returns:
            The decision that counts: this one, or the one that was first.

        Raises:
            UnknownReview: if there is none with this id.
            Conflict: if it has expired.
            AlreadyClosed: if its execution has ended; nothing was stored.
            InvalidArgument: if the verdict is no text, or the data is not JSON.

        Example:
            ``await engine.reviews.decide(rid, verdict="approve", by=Actor.human("ada@x.org"))``
        """
        return (await self.decide_result(rid, verdict=verdict, data=data, by=by)).decision

    async def decide_result(
        self, rid: str, *, verdict: str, data: Any = None, by: Actor = ENGINE
    ) -> DecideResult:
        """Decide a review like `decide`, and tell whether this decision was the first."""
        if not is_text(verdict) or not 0 < len(verdict) <= VERDICT_MAX:
            message = f"verdict is {verdict!r}; it is a text of at most {VERDICT_MAX} characters"
            raise InvalidArgument(message)
        by, now = requests.check_actor(by), now_us(self._engine.clock)
        where = f"the data of the decision on review {rid}"
        plain = codec.decode(codec.encode(where, data))
        review = await self._engine.projection.review(rid) if is_text(rid) else None
        if review is None:
            raise UnknownReview(rid)
        decision = Decision(rid, verdict, plain, by, from_us(now))
        kept = bytes(self._engine.values.encode(where, keep(decision)))
        told = bytes(codec.encode(where, {"rid": rid, **keep(decision)}))
        eid, channel = review.eid, review.reply_channel
        if not is_reply_channel(channel):
            message = f"review {rid} was announced without a reply channel: nobody waits for it"
            raise Conflict(message)
        parse_task_id(review.task_id)
        outcome = await self._engine.committer.apply(
            Claim(claim_key(rid), eid, kept, now, only_first=True),
            Send(eid, channel, kept, by, rid, now),
            Announce(eid, 0, review.fid, "review.decided", told, now),
            Withdraw(review.queue, review.task_id),
        )
        if isinstance(outcome, Done):
            return DecideResult(decision, first=True)
        if outcome.code != "claimed":
            raise requests.refusal(eid, outcome)
        first = self._engine.values.decode(where, (outcome.detail or "null").encode())
        if first is None:
            message = f"review {rid} has expired; its workflow went on without a decision"
            raise Conflict(message)
        return DecideResult(recall(rid, first), first=False)
