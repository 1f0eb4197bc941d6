"""A codec that is missing, wrong or out of order: that is for an operator, and fails nobody."""

from __future__ import annotations

import base64
import contextlib
import sqlite3
import zlib
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    Context,
    EngineConfig,
    ExecutionStatus,
    InvalidArgument,
    NotSerializable,
    PayloadUnreadable,
    PayloadUnwritable,
    Registry,
    RetryPolicy,
)
from perdure.runtime.detached import GIVEN_BACK_S
from perdure.testing import EngineUnderTest, engine_under_test
from tests.engine.cluster import cluster
from tests.engine.support import Runs, result_of

FORGED: dict[str, Any] = {"perdure:encoded": "x"}


class Moody:
    """A codec that anybody can decode, while its service is up.

    Attributes:
        up: whether it encodes.
        lost: values that hold this are not decoded.
    """

    def __init__(self) -> None:
        self.up = True
        self.lost: bytes | None = None

    def encode(self, data: bytes) -> bytes:
        if not self.up:
            raise OSError("no keys today")
        return zlib.compress(data)

    def decode(self, data: bytes) -> bytes:
        plain = zlib.decompress(data)
        if self.lost is not None and self.lost in plain:
            raise OSError("no keys today")
        return plain


class Junk(Moody):
    """A codec that is not the right one, and does not notice."""

    def decode(self, data: bytes) -> bytes:
        del data
        return b"no JSON"


async def result(ctx: Context) -> Any:
    await ctx.sleep(1)
    return "result"


async def send(ctx: Context) -> Any:
    try:
        await ctx.send("own", "sent")
    except PayloadUnwritable:  # a replay may not see it, so nothing may come of it
        return "noticed"
    return "sent"


async def receive(ctx: Context) -> Any:
    message = await ctx.receive("x")
    return message and message.payload


async def claim(ctx: Context) -> Any:
    return list(await ctx.claim("key", "claimed"))


async def parent(ctx: Context) -> Any:
    return await ctx.child("result")


async def echo(ctx: Context, value: Any) -> Any:
    def give() -> Any:
        return value.get("inner", value) if isinstance(value, dict) else value

    given = await ctx.step(give)
    await ctx.sleep(1)
    return given


async def now(ctx: Context) -> Any:
    instant = ctx.now()
    await ctx.sleep(1)
    return instant.isoformat()


def workflows(runs: Runs) -> Registry:
    """Register workflows that each let one thing through the codec."""
    registry = Registry()
    for function in (result, send, receive, claim, parent, echo, now):
        registry.workflow(function.__name__, version="1")(function)

    @registry.step()
    def count(name: str) -> str:
        runs[name] += 1
        return name

    @registry.workflow("step", version="1")
    async def step(ctx: Context) -> Any:
        return await ctx.step(count, "step")

    @registry.workflow("elsewhere", version="1")
    async def elsewhere(ctx: Context) -> Any:
        return await ctx.step(count, "elsewhere", queue="far")

    return registry


def config_of(codec: Any) -> EngineConfig:
    return EngineConfig(drain=0, codec=codec)


async def blocked_by(under: EngineUnderTest, eid: Any) -> str:
    """Give why an execution waits for an operator; it does not fail."""
    row = await under.engine.execution(eid)
    assert row.status is ExecutionStatus.SUSPENDED, row
    assert row.blocked is not None, row
    assert "the code changed" not in row.blocked
    return row.blocked


@pytest.mark.parametrize(
    ("workflow", "where"),
    [("step", "root/count#0"), ("result", "the result of result"), ("send", "root/send#0")],
)
async def test_a_codec_that_raises_in_encode_blocks(url: str, workflow: str, where: str) -> None:
    codec, runs = Moody(), Runs()
    async with engine_under_test(workflows(runs), url=url, config=config_of(codec)) as under:
        eid = await under.engine.start(workflow)
        codec.up = False
        await under.run_until_idle()
        await under.advance(2)
        assert (await blocked_by(under, eid)).startswith(
            f"{where}: the PayloadCodec could not encode it (OSError: no keys today)"
        )
        codec.up = True
        await under.engine.resume(eid)
        await under.run_until_idle()
        result = {"send": "sent"}.get(workflow, workflow)
        assert await under.engine.result(eid) == result
        assert runs["step"] == (
            2 if workflow == "step" else 0
        )  # its outcome was lost, as in a crash


async def test_a_call_from_outside_is_refused_when_the_codec_raises(url: str) -> None:
    codec = Moody()
    async with engine_under_test(workflows(Runs()), url=url, config=config_of(codec)) as under:
        eid = await under.engine.start("receive")
        codec.up = False
        for call in (under.engine.start("echo", 1), under.engine.signal(eid, "x", 1)):
            with pytest.raises(PayloadUnwritable, match="no keys today"):
                await call
        assert len((await under.engine.executions()).items) == 1


async def test_a_message_that_cannot_be_decoded_waits(url: str) -> None:
    codec = Moody()
    async with engine_under_test(workflows(Runs()), url=url, config=config_of(codec)) as under:
        eid = await under.engine.start("receive")
        await under.run_until_idle()
        await under.engine.signal(eid, "x", "secret")
        codec.lost = b"secret"
        await under.run_until_idle()
        assert (await blocked_by(under, eid)).startswith("root/receive#0: it was encoded by a Pay")
        codec.lost = None
        await under.engine.resume(eid)
        await under.run_until_idle()
        assert await under.engine.result(eid) == "secret"


async def test_the_result_of_a_child_that_cannot_be_decoded_waits(url: str) -> None:
    codec = Moody()
    async with engine_under_test(workflows(Runs()), url=url, config=config_of(codec)) as under:
        eid = await under.engine.start("parent")
        await under.run_until_idle()
        codec.lost = b'"result"'
        await under.advance(2)
        assert (await blocked_by(under, eid)).startswith("root/result#0: it was encoded by a Payl")
        codec.lost = None
        await under.engine.resume(eid)
        await under.run_until_idle()
        assert await under.engine.result(eid) == "result"


async def test_a_claim_whose_winner_cannot_be_decoded_blocks_live_as_on_a_replay(url: str) -> None:
    codec = Moody()
    async with engine_under_test(workflows(Runs()), url=url, config=config_of(codec)) as under:
        first = await under.engine.start("claim")
        await under.run_until_idle()
        second = await under.engine.start("claim")
        codec.lost = b'"claimed"'
        await under.run_until_idle()
        for _ in range(2):
            assert (await blocked_by(under, second)).startswith(
                "root/claim#0: it was encoded by a "
            )
            await under.engine.resume(second)
            await under.run_until_idle()
        codec.lost = None
        await under.engine.resume(second)
        await under.run_until_idle()
        assert await under.engine.result(first) == [True, "claimed"]
        assert await under.engine.result(second) == [False, "claimed"]


async def test_a_step_elsewhere_goes_back_when_that_worker_lacks_the_codec(url: str) -> None:
    runs = Runs()
    async with cluster(workflows(runs), url) as opened:
        owner = await opened.boot(config=config_of(Moody()))
        eid = await owner.engine.start("elsewhere")
        await owner.run_until_idle()
        lacking = await opened.boot(queues=("far",), config=config_of(None))
        await lacking.run_until_idle()
        await owner.run_until_idle()
        assert runs["elsewhere"] == 0
        assert (await owner.engine.execution(eid)).status is ExecutionStatus.SUSPENDED
        await lacking.kill_worker()
        having = await opened.boot(queues=("far",), config=config_of(Moody()))
        await having.advance(GIVEN_BACK_S + 1)
        await owner.run_until_idle()
        assert await owner.engine.result(eid) == "elsewhere"
        assert runs["elsewhere"] == 1


async def test_the_value_of_a_step_elsewhere_waits_until_its_owner_can_decode_it(url: str) -> None:
    codec, runs = Moody(), Runs()
    async with cluster(workflows(runs), url) as opened:
        owner = await opened.boot(config=config_of(codec))
        eid = await owner.engine.start("elsewhere")
        await owner.run_until_idle()
        other = await opened.boot(queues=("far",), config=config_of(Moody()))
        await other.run_until_idle()
        codec.lost = b'"elsewhere"'
        await owner.run_until_idle()
        assert (await blocked_by(owner, eid)).startswith(
            "root/count#0: it was encoded by a Payload"
        )
        codec.lost = None
        await owner.engine.resume(eid)
        await owner.run_until_idle()
        assert await owner.engine.result(eid) == "elsewhere"
        assert runs["elsewhere"] == 1


@pytest.mark.cold
async def test_a_result_that_is_no_json_after_decoding_is_no_result(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'junk.db'}"
    async with engine_under_test(workflows(Runs()), url=url, config=config_of(Moody())) as under:
        eid = await under.engine.start("step")
        await under.run_until_idle()
    async with engine_under_test(workflows(Runs()), url=url, config=config_of(Junk())) as under:
        with pytest.raises(PayloadUnreadable, match=f"the result of execution {eid}"):
            await under.engine.result(eid)
        row = await under.engine.execution(eid)
        assert list(row.result) == ["perdure:encoded"]  # who only looks sees the envelope


@pytest.mark.parametrize("codec", [None, Moody()], ids=["plain", "codec"])
async def test_nobody_can_block_an_execution_with_a_forged_envelope(url: str, codec: Any) -> None:
    async with engine_under_test(workflows(Runs()), url=url, config=config_of(codec)) as under:
        engine = under.engine
        eid = await engine.start("receive")
        with pytest.raises(NotSerializable, match="perdure:encoded"):
            await engine.signal(eid, "x", FORGED)
        forging = await engine.start("echo", {"inner": FORGED})
        await under.run_until_idle()
        row = await engine.execution(forging)
        assert row.error is not None
        assert row.error.type == "StepFailed"
        assert "NotSerializable: root/give#0" in row.error.message


async def test_what_looks_like_an_envelope_inside_a_value_is_left_alone(url: str) -> None:
    inner = {"perdure:encoded": base64.b64encode(zlib.compress(b"7")).decode()}
    async with engine_under_test(workflows(Runs()), url=url, config=config_of(Moody())) as under:
        engine = under.engine
        eid = await engine.start("echo", [inner])
        await under.run_until_idle()
        await under.advance(2)
        assert await engine.result(eid) == [inner]
        row = await engine.wait(eid)
        assert (row.args, row.result) == ([[[inner]], {}], [inner])
        tree = await engine.frames(eid)
        assert (tree.value, tree.children[0].value) == ([inner], [inner])
        values = [
            entry.payload["value"]
            for entry in await engine.journal(eid)
            if "value" in entry.payload
        ]
        assert values == [[inner], [inner]]


@pytest.mark.cold
async def test_what_is_recorded_is_not_measured_again_with_a_lower_limit(tmp_path: Path) -> None:
    registry, url = Registry(), f"sqlite:///{tmp_path / 'limits.db'}"

    @registry.workflow("pad", version="1")
    async def pad(ctx: Context, value: str) -> int:
        await ctx.sleep(1000)
        return len(value)

    @registry.workflow("gives", version="1")
    async def gives(ctx: Context) -> Any:
        big = "x" * 5_000
        await ctx.send("own", big)
        await ctx.announce("big", big)
        await ctx.claim("key", big)
        await ctx.enqueue("q", big)
        await ctx.publish("s", big)
        child = ctx.child("pad", big)
        await ctx.sleep(1)
        return await child

    async with engine_under_test(registry, url=url, config=config_of(Moody())) as under:
        eid = await under.engine.start("gives")
        await under.run_until_idle()
    codec = Moody()
    codec.up = False  # a replay encodes nothing, either
    config = EngineConfig(drain=0, payload_max=1_000, codec=codec)
    async with engine_under_test(registry, url=url, config=config) as under:
        await under.advance(60)
        row = await under.engine.execution(eid)
        assert (row.blocked, row.error) == (None, None)
        codec.up = True
        await under.advance(1000)
        assert await result_of(under, eid) == 5_000


async def test_an_override_of_a_value_that_is_given_at_the_call_is_decoded(url: str) -> None:
    async with engine_under_test(workflows(Runs()), url=url, config=config_of(Moody())) as under:
        eid = await under.engine.start("now")
        await under.run_until_idle()
        given = {"root/now#0": "2031-01-01T00:00:00Z"}
        fork = await under.engine.fork(eid, "root/sleep#0", overrides=given)
        forked = (await under.engine.journal(fork))[0]
        assert forked.payload["overrides"] == given
        await under.advance(2)
        assert await under.engine.result(fork) == "2031-01-01T00:00:00+00:00"


@pytest.mark.cold
async def test_values_from_before_the_codec_are_plain(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'adopted.db'}"
    async with engine_under_test(workflows(Runs()), url=url, config=config_of(None)) as under:
        eid = await under.engine.start("echo", ["old"])
        await under.run_until_idle()
    async with engine_under_test(workflows(Runs()), url=url, config=config_of(Moody())) as under:
        await under.advance(60)
        assert await under.engine.result(eid) == ["old"]
        assert (await under.engine.execution(eid)).args == [[["old"]], {}]


async def test_a_transaction_whose_value_cannot_be_encoded_is_rolled_back(tmp_path: Path) -> None:
    codec, runs, registry = Moody(), Runs(), Registry()

    def write(connection: Any) -> str:
        runs["write"] += 1
        codec.up = runs["write"] == 2
        connection.execute("CREATE TABLE IF NOT EXISTS written (run INTEGER)")
        connection.execute("INSERT INTO written VALUES (?)", (runs["write"],))
        return "written"

    @registry.workflow("writes", version="1")
    async def writes(ctx: Context) -> str:
        return await ctx.transaction(write, retry=RetryPolicy(max_attempts=2))

    path = tmp_path / "t.db"
    url = f"sqlite:///{path}"
    async with engine_under_test(registry, url=url, config=config_of(codec)) as under:
        eid = await under.engine.start("writes")
        await under.run_until_idle()
        assert await under.engine.result(eid) == "written"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT run FROM written").fetchall() == [(2,)]


@pytest.mark.cold
async def test_who_needs_a_value_from_outside_is_told(tmp_path: Path) -> None:
    registry, url = Registry(), f"sqlite:///{tmp_path / 'outside.db'}"

    @registry.workflow("gives", version="1")
    async def gives(ctx: Context) -> None:
        await ctx.publish("words", "secret")
        await ctx.enqueue("agents", "secret")

    async with engine_under_test(registry, url=url, config=config_of(Moody())) as under:
        eid = await under.engine.start("gives")
        await under.run_until_idle()
    async with engine_under_test(registry, url=url, config=config_of(None)) as under:
        with pytest.raises(PayloadUnreadable, match="item 1 of stream 'words': it was encoded"):
            await anext(under.engine.stream(eid, "words"))
        with pytest.raises(PayloadUnreadable, match=r"the payload of task .*: it was"):
            await under.engine.consumer(["agents"], holder="a").dequeue()


class Async:
    async def encode(self, data: bytes) -> bytes:
        return data

    async def decode(self, data: bytes) -> bytes:
        return data


@pytest.mark.parametrize(
    "codec", [Async(), Moody, "zlib", object()], ids=["async", "class", "text", "object"]
)
def test_what_is_no_codec_is_refused(codec: Any) -> None:
    with pytest.raises(InvalidArgument, match="codec is"):
        EngineConfig(codec=codec)
