"""Which frames give their value at the call? What would differ on a replay: time, chance, patches.

There is nothing to await: the value is recorded, or derived from the seed of the execution.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from perdure.errors import Abandoned, NondeterminismError
from perdure.model import codec
from perdure.model.ids import FRAME_KEY, PATCHES, check_name
from perdure.model.instants import from_us
from perdure.runtime.code.opening import Opening

_DATETIME = codec.decoder_of(datetime)
_UUID = codec.decoder_of(UUID)


class Inline(Opening):
    """The part of a context whose frames give their value at the call."""

    __slots__ = ()

    def now(self) -> datetime:
        """Give the instant at which this line first ran, on every replay.

        It returns at the call; there is nothing to await.
        """
        value: datetime = self._inline(
            "now", lambda _: from_us(self._runner.now_us()), _DATETIME, gate=True
        )
        return value

    def random(self) -> float:
        """Give a random number in [0, 1), the same on every replay. It returns at the call."""

        def derive(fid: str) -> float:
            return (int.from_bytes(self._derive(fid)[:8]) >> 11) / 2**53

        value: float = self._inline("random", derive, codec.decode, gate=False)
        return value

    def uuid(self) -> UUID:
        """Give a random UUID, the same on every replay. It returns at the call."""

        def derive(fid: str) -> UUID:
            return UUID(bytes=self._derive(fid)[:16], version=4)

        value: UUID = self._inline("uuid", derive, _UUID, gate=False)
        return value

    def patched(self, patch_id: str) -> bool:
        """Tell whether this execution takes the new branch of a change of the code.

        An execution that had not come to this point when it meets the change takes the new branch,
        one that was beyond it takes the old one; the answer is recorded, and the same for all calls
        with this id. It returns at the call.

        Args:
            patch_id: names the change; of the grammar of a frame key.

        Raises:
            InvalidName: if the id is out of its grammar.

        Example:
            ``if ctx.patched("two-signatures"): await ctx.step(sign_twice, paper)`` and, for the
            executions that were beyond it, ``else: await ctx.step(sign, paper)``
        """
        return self._patch("patched", patch_id)

    def deprecate_patch(self, patch_id: str) -> None:
        """Say that the old branch of a change is gone from the code.

        An execution that would take it is blocked, for an operator, instead of running code that
        does not fit it. When no such execution is left, this line can go, too.

        Args:
            patch_id: what was given to `patched`.
        """
        self._check("deprecate_patch")
        runner, fid = self._runner, f"{PATCHES}{check_name('patch id', patch_id, FRAME_KEY)}"
        answered = patch_id in self._patches or fid in runner.table.memos
        if (answered or not runner.replays) and self._patch("deprecate_patch", patch_id):
            return
        remedy = (
            f"the old branch of patch {patch_id!r} is gone from the code: bring it back under "
            f"ctx.patched({patch_id!r}) and resume the execution, or migrate it to a version that "
            "has it"
        )
        difference = "the execution is on the old branch, or had passed this place before"
        self._driver.stop(NondeterminismError(fid, difference, remedy))
        raise Abandoned

    def _patch(self, method: str, patch_id: str) -> bool:
        self._check(method)
        check_name("patch id", patch_id, FRAME_KEY)
        known = self._patches.get(patch_id)
        if known is None:
            new = not self._runner.replays
            known = self._inline("patched", lambda _: new, codec.decode, gate=True, key=patch_id)
            self._patches[patch_id] = known
        return known
