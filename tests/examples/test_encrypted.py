"""Does the encrypting codec keep what it is given secret, notice changes, and know old keys?"""

from __future__ import annotations

import inspect
import secrets
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag

from examples.encrypted import aes
from examples.encrypted.aes import AesGcm
from perdure import Context, EngineConfig, Registry, StartOptions
from perdure.testing import engine_under_test

ROOT = Path(aes.__file__).parents[2]
WORD = "in-confidence"

registry = Registry()


def repeat(word: str) -> list[str]:
    return [word, word]


@registry.workflow("confide", version="1")
async def confide(ctx: Context, word: str, *, more: Any = None) -> Any:
    words = await ctx.step(repeat, word)
    await ctx.send("own", {"sent": word})
    message = await ctx.receive("own")
    won, kept = await ctx.claim("key", word)
    await ctx.enqueue("agents", word)
    await ctx.publish("words", word)
    child = await ctx.child("listen", words) if more is None else None
    signal = await ctx.receive("x")
    return [words, message and message.payload, won, kept, child, signal and signal.payload, more]


@registry.workflow("listen", version="1")
async def listen(_ctx: Context, words: list[str]) -> list[str]:
    return words


def config_of(current: str, **keys: bytes) -> EngineConfig:
    return EngineConfig(drain=0, codec=AesGcm(keys, current))


OLD, NEW = (AesGcm.new_key() for _ in range(2))


def held_in(folder: Path) -> bytes:
    """Give all that the files in a folder hold."""
    return b"".join(path.read_bytes() for path in folder.iterdir())


async def test_the_files_of_the_store_do_not_hold_what_was_confided(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'confided.db'}"
    options = StartOptions(tags={"plain": "tag-in-the-open"})
    async with engine_under_test(registry, url=url, config=config_of("a", a=OLD)) as under:
        engine = under.engine
        eid = await engine.start(confide, WORD, options=options)
        await under.run_until_idle()
        await engine.signal(eid, "x", WORD)
        await under.run_until_idle()
        pair = [WORD, WORD]
        told = [pair, {"sent": WORD}, True, WORD, pair, WORD, None]
        assert await engine.result(eid) == told
        fork = await engine.fork(eid, "root", overrides={"root/repeat#0": [WORD]})
        await under.run_until_idle()
        await engine.terminate(fork)
        held = held_in(tmp_path)  # with the log that SQLite has not written back yet
    held += held_in(tmp_path)
    assert b"perdure:encoded" in held
    assert b"tag-in-the-open" in held
    assert WORD.encode() not in held


async def test_a_new_key_writes_while_the_old_one_still_reads(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'rotated.db'}"
    async with engine_under_test(registry, url=url, config=config_of("a", a=OLD)) as under:
        eid = await under.engine.start(confide, WORD, more="more")
        await under.run_until_idle()
    both = config_of("b", a=OLD, b=NEW)
    async with engine_under_test(registry, url=url, config=both) as under:
        await under.advance(60)
        await under.engine.signal(eid, "x", WORD)
        await under.run_until_idle()
        assert (await under.engine.result(eid))[-2:] == [WORD, "more"]
    # What the new key wrote needs the old one no more; what the old one wrote does.
    async with engine_under_test(registry, url=url, config=config_of("b", b=NEW)) as under:
        assert (await under.engine.result(eid))[-2:] == [WORD, "more"]
        assert list((await under.engine.execution(eid)).args) == ["perdure:encoded"]


def test_the_same_value_is_never_stored_the_same_way_twice() -> None:
    codec = AesGcm({"a": OLD}, "a")
    stored = {codec.encode(b'"x"') for _ in range(100)}
    assert len(stored) == 100
    assert {codec.decode(one) for one in stored} == {b'"x"'}


@pytest.mark.parametrize("size", [0, 1, 1_000])
def test_every_changed_bit_of_a_stored_value_is_noticed(size: int) -> None:
    codec = AesGcm({"a": OLD, "b": NEW}, "a")
    stored = codec.encode(secrets.token_bytes(size))
    for place in {*range(30), len(stored) - 1} & set(range(len(stored))):
        changed = bytearray(stored)
        changed[place] ^= 1
        with pytest.raises((InvalidTag, KeyError, UnicodeDecodeError, ValueError)):
            codec.decode(bytes(changed))


def test_what_another_key_of_the_same_name_wrote_is_not_read() -> None:
    with pytest.raises(InvalidTag):
        AesGcm({"a": NEW}, "a").decode(AesGcm({"a": OLD}, "a").encode(b"1"))


@pytest.mark.parametrize("current", ["missing", "n" * 256])
def test_a_current_key_that_cannot_be_used_is_refused_at_once(current: str) -> None:
    with pytest.raises(ValueError, match="current"):
        AesGcm({"a": OLD, "n" * 256: OLD}, current)


def test_the_page_shows_the_class_as_it_is() -> None:
    page = (ROOT / "docs" / "payloads.md").read_text(encoding="utf-8")
    assert inspect.getsource(AesGcm) in page
