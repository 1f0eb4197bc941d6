"""How large values are warned of and refused, and what a `PayloadCodec` does to what is stored."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from examples.encrypted.aes import AesGcm
from perdure import (
    Context,
    EngineConfig,
    InvalidArgument,
    PayloadTooLarge,
    PayloadUnreadable,
    Registry,
    RetryPolicy,
    StepFailed,
    step_info,
)
from perdure.patterns import delegate, review
from perdure.testing import EngineUnderTest, engine_under_test
from tests.engine.support import Runs, result_of

SECRET = "the-word"  # noqa: S105 - a value like any other
KEYS = {"old": secrets.token_bytes(32), "new": secrets.token_bytes(32)}


@dataclass
class Note:
    """A typed value."""

    text: str


def secrets_of(runs: Runs) -> Registry:
    """Give a workflow in which a secret goes through everything that holds values."""
    registry = Registry()

    @registry.step()
    def elsewhere(note: Note) -> Note:
        step_info().publish("notes", note.text)
        return note

    def repeat(text: str) -> Note:
        runs["repeat"] += 1
        return Note(text)

    @registry.workflow("child", version="1")
    async def child(ctx: Context, note: Note) -> Note:
        return await ctx.step(repeat, note.text)

    @registry.workflow("all", version="1")
    async def everything(ctx: Context, word: str, *, more: Note) -> dict[str, Any]:
        found: dict[str, Any] = {"step": (await ctx.step(repeat, word)).text}
        found["detached"] = (await ctx.step(elsewhere, more, queue="default")).text
        found["child"] = (await ctx.child(child, more)).text
        found["sent"] = await ctx.send("own", word)
        got = await ctx.receive("own")
        found["got"] = got and got.payload
        await ctx.publish("notes", word)
        found["claim"] = list(await ctx.claim(f"k{ctx.eid}", {"word": word}))
        found["again"] = list(await ctx.claim(f"k{ctx.eid}", "other"))
        signal = await ctx.receive("x")
        found["signal"] = signal and signal.payload
        answer = await delegate(ctx, "agents", {"ask": word})
        found["answer"] = answer and answer.payload
        decision = await review(ctx, "people", "a review is announced, and so is plain")
        found["decision"] = decision and decision.verdict
        return found

    @registry.workflow("last", version="1")
    async def last(ctx: Context, count: int) -> str:
        if count:
            ctx.continue_as(count - 1)
        return (await ctx.step(repeat, SECRET)).text

    return registry


def config_of(current: str = "old") -> EngineConfig:
    return EngineConfig(drain=0, codec=AesGcm(KEYS, current))


async def run_all(under: EngineUnderTest, word: str) -> Any:
    engine = under.engine
    eid = await engine.start("all", word, more=Note(word))
    await under.run_until_idle()
    await engine.signal(eid, "x", {"signal": word})
    await under.run_until_idle()
    held = await engine.consumer(["agents"], holder="a").dequeue()
    assert held is not None
    assert held.task.payload == {"ask": word}
    await held.renew({"state": word})
    (again,) = await engine.consumer(["agents"], holder="a").attach()
    assert again.state == {"state": word}
    await held.complete({"answer": word})
    await under.run_until_idle()
    (pending,) = await engine.reviews.pending()
    await engine.reviews.decide(pending.rid, verdict="fine", data=word)
    decided = await engine.reviews.decide(pending.rid, verdict="late")
    assert (decided.verdict, decided.data) == ("fine", word)
    await under.run_until_idle()
    return eid


async def test_everything_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "secret.db"
    word = f"{SECRET}-{secrets.token_hex(8)}"
    runs = Runs()
    async with engine_under_test(
        secrets_of(runs), url=f"sqlite:///{path}", config=config_of()
    ) as under:
        engine = under.engine
        eid = await run_all(under, word)
        result = await engine.result(eid)
        assert result == {
            "step": word,
            "detached": word,
            "child": word,
            "sent": 1,
            "got": word,
            "claim": [True, {"word": word}],
            "again": [False, {"word": word}],
            "signal": {"signal": word},
            "answer": {"answer": word},
            "decision": "fine",
        }
        assert [item async for item in engine.stream(eid, "notes")] == [word, word]
        row = await engine.execution(eid)
        assert row.args == [[word], {"more": {"text": word}}]
        assert (await engine.executions(workflow="all")).items[0].args == row.args
        values = [node.value for node in (await engine.frames(eid)).children]
        assert values[:3] == [{"text": word}] * 3
        assert word in repr(await engine.journal(eid))
        assert [entry.payload async for entry in engine.watch(eid)][-1]["value"] == result
        fork = await engine.fork(eid, "root/send#0", overrides={"root/repeat#0": {"text": "given"}})
        await under.run_until_idle()
        given = {node.fid: node.value for node in (await engine.frames(fork)).children}
        assert given["root/repeat#0"] == {"text": "given"}
        await engine.terminate(fork)
        last = await engine.start("last", 2)
        await under.run_until_idle()
        assert await engine.result(last) == SECRET
    stored = (
        path.read_bytes() + path.with_name("secret.db-wal").read_bytes()
        if (path.with_name("secret.db-wal").exists())
        else path.read_bytes()
    )
    assert b"perdure:encoded" in stored
    # What is decided of a review is announced, which is for readers of the control log.
    assert stored.count(word.encode()) == stored.count(b'"data":"' + word.encode())


async def test_keys_are_rotated(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'rotated.db'}"
    runs = Runs()
    async with engine_under_test(secrets_of(runs), url=url, config=config_of("old")) as under:
        eid = await under.engine.start("all", "w", more=Note("w"))
        await under.run_until_idle()
    async with engine_under_test(secrets_of(runs), url=url, config=config_of("new")) as under:
        await under.advance(60)
        await under.engine.signal(eid, "x", 1)
        await under.run_until_idle()
        assert (await under.engine.execution(eid)).blocked is None
        assert runs["repeat"] == 2  # the memos of the old key are read, nothing runs again


@pytest.mark.cold
async def test_without_the_codec_an_execution_waits_for_an_operator(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'lost.db'}"
    runs = Runs()
    async with engine_under_test(secrets_of(runs), url=url, config=config_of()) as under:
        eid = await under.engine.start("all", "w", more=Note("w"))
        done = await under.engine.start("last", 0)
        await under.run_until_idle()
    for config in (
        EngineConfig(drain=0),
        EngineConfig(drain=0, codec=AesGcm({"a": KEYS["new"]}, "a")),
    ):
        async with engine_under_test(secrets_of(runs), url=url, config=config) as under:
            engine = under.engine
            await under.advance(60)
            await engine.signal(eid, "x", 1)
            await under.run_until_idle()
            row = await engine.execution(eid)
            assert row.blocked is not None
            assert "PayloadCodec" in row.blocked
            assert list(row.args) == ["perdure:encoded"]  # who only looks sees the envelope
            assert "perdure:encoded" in repr(await engine.journal(eid))
            with pytest.raises(PayloadUnreadable, match="PayloadCodec"):
                await engine.result(done)
    async with engine_under_test(secrets_of(runs), url=url, config=config_of()) as under:
        await under.advance(60)
        await under.engine.resume(eid)
        await under.run_until_idle()
        assert (await under.engine.execution(eid)).blocked is None


def sizes(runs: Runs) -> Registry:
    """Give workflows with values of any size."""
    registry = Registry()

    def make(size: int) -> str:
        runs["make"] += 1
        return "x" * size

    @registry.workflow("value", version="1")
    async def value(ctx: Context, size: int) -> int:
        try:
            return len(await ctx.step(make, size, retry=RetryPolicy(max_attempts=5)))
        except StepFailed as failed:
            return -failed.attempts if failed.error_type == "PayloadTooLarge" else 0

    @registry.workflow("call", version="1")
    async def call(ctx: Context, method: str, size: int) -> Any:
        big = "x" * size
        calls: dict[str, Any] = {
            "send": lambda: ctx.send("own", big),
            "announce": lambda: ctx.announce("a", big),
            "enqueue": lambda: ctx.enqueue("q", big),
            "publish": lambda: ctx.publish("s", big),
            "claim": lambda: ctx.claim("k", big),
            "child": lambda: ctx.child("result", 1, pad=big),
        }
        try:
            await calls[method]()
        except PayloadTooLarge as refused:
            return refused.size

    @registry.workflow("result", version="1")
    async def result(ctx: Context, size: int, pad: str = "") -> str:
        return "x" * size * len(str(ctx.eid)[:1]) + pad[:0]

    return registry


SMALL = EngineConfig(drain=0, payload_warn=1_000, payload_max=10_000)


@pytest.mark.parametrize(
    ("size", "expected", "warned"), [(998, 998, False), (5_000, 5_000, True), (9_999, -1, False)]
)
async def test_the_value_of_a_step(
    url: str, size: int, expected: int, *, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    runs = Runs()
    async with engine_under_test(sizes(runs), url=url, config=SMALL) as under:
        eid = await under.engine.start("value", size)
        await under.run_until_idle()
        assert await result_of(under, eid) == expected
        assert runs["make"] == 1  # it is never retried
        assert ("root/make#0: " in caplog.text) is warned


@pytest.mark.parametrize("method", ["send", "announce", "enqueue", "publish", "claim", "child"])
async def test_what_a_function_gives_away(
    url: str, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with engine_under_test(sizes(Runs()), url=url, config=SMALL) as under:
        large = await under.engine.start("call", method, 10_001)
        fine = await under.engine.start("call", method, 5_000)
        await under.run_until_idle()
        assert await result_of(under, large) >= 10_003
        assert await result_of(under, fine) is None
        assert f"root/{method if method != 'child' else 'result'}#0" in caplog.text or (
            method == "send" and "payload for channel 'own'" in caplog.text
        )


async def test_what_comes_from_outside(url: str) -> None:
    big = "x" * 10_001
    async with engine_under_test(sizes(Runs()), url=url, config=SMALL) as under:
        engine = under.engine
        eid = await engine.start("result", 1)
        refused = [
            engine.start("result", 1, pad=big),
            engine.start_many("result", [[1], [1, big]]),
            engine.signal(eid, "x", big),
            engine.broadcast("x", big),
            engine.deliver(eid, "reply.x", big),
        ]
        for call in refused:
            with pytest.raises(PayloadTooLarge, match=r"keep large data elsewhere"):
                await call
        assert len((await engine.executions()).items) == 1
        large = await engine.start("result", 10_001)
        await under.run_until_idle()
        row = await engine.execution(large)
        assert row.error is not None
        assert row.error.type == "PayloadTooLarge"
        with pytest.raises(PayloadTooLarge):
            await engine.fork(eid, "root", overrides={"root/make#0": big})


@pytest.mark.parametrize(
    "wrong",
    [
        {"payload_warn": 0},
        {"payload_warn": "1"},
        {"payload_max": None},
        {"payload_max": -1},
        {"payload_max": True},
        {"codec": "aes"},
    ],
    ids=str,
)
def test_bad_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        EngineConfig(**wrong)


def test_a_warning_can_be_turned_off(caplog: pytest.LogCaptureFixture) -> None:
    values = EngineConfig(payload_warn=None, payload_max=100).values()
    assert len(values.encode("here", "x" * 90)) == 92
    assert caplog.text == ""
