"""Which functions can be workflows? What cannot be driven is refused when it is registered."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import perdure
from perdure import (
    Context,
    DuplicateRegistration,
    InvalidArgument,
    InvalidName,
    Registry,
    UnknownWorkflow,
)
from perdure.testing import engine_under_test


async def fits(ctx: Context) -> None:
    del ctx


async def named_ctx(ctx, value):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    del ctx
    return value


async def annotated_otherwise(context: perdure.Context, value: int) -> int:
    del context
    return value


async def positional_only(ctx: Context, /, value: int) -> int:
    del ctx
    return value


def not_async(ctx: Context) -> None:
    del ctx


async def generator(ctx: Context) -> AsyncIterator[int]:
    del ctx
    yield 1


async def no_parameters() -> None:
    """Take nothing."""


async def no_context(item: str) -> None:
    del item


async def not_annotated(context) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    del context


async def wrong_annotation(ctx: int) -> None:
    del ctx


async def keyword_context(*, ctx: Context) -> None:
    del ctx


async def star_context(*ctx: Context) -> None:
    del ctx


class Holder:
    async def method(self, ctx: Context, value: int) -> int:
        del ctx
        return value


@pytest.mark.parametrize(
    "function", [named_ctx, annotated_otherwise, positional_only, Holder().method]
)
async def test_the_first_parameter_is_the_context(function: Callable[..., Any]) -> None:
    """It is annotated with `Context`, or not annotated and called ``ctx``."""
    registry = Registry()
    assert registry.workflow("w", version="1")(function) is function
    async with engine_under_test(registry) as under:
        eid = await under.engine.start(function, 7)
        await under.run_until_idle()
        assert await under.engine.result(eid) == 7


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (not_async, "'not_async' is not an async function"),
        (generator, "'generator' is not an async function"),
        (lambda ctx: ctx, "is not an async function"),
        (Holder, "is not an async function"),
        (7, "7 is not an async function"),
        (no_parameters, "first parameter of 'no_parameters' is the context"),
        (no_context, "first parameter of 'no_context' is the context"),
        (not_annotated, "first parameter of 'not_annotated' is the context"),
        (wrong_annotation, "first parameter of 'wrong_annotation' is the context"),
        (keyword_context, "first parameter of 'keyword_context' is the context"),
        (star_context, "first parameter of 'star_context' is the context"),
    ],
)
def test_what_cannot_be_driven_is_refused(function: Any, says: str) -> None:
    registry = Registry()
    with pytest.raises(InvalidArgument, match=says) as refused:
        registry.workflow("w", version="1")(function)
    assert "'w'" in str(refused.value)
    assert registry.known == frozenset()


def test_one_version_is_registered_once() -> None:
    registry = Registry()
    registry.workflow("w", version="1")(fits)
    with pytest.raises(DuplicateRegistration, match=r"'w' version '1'.*another version") as twice:
        registry.workflow("w", version="1")(annotated_otherwise)
    assert (twice.value.name, twice.value.version) == ("w", "1")
    registry.workflow("w", version="2")(fits)
    registry.workflow("v", version="1")(fits)
    assert registry.known == {("w", "1"), ("w", "2"), ("v", "1")}
    with pytest.raises(UnknownWorkflow):
        registry.find(annotated_otherwise)


@pytest.mark.parametrize(
    ("name", "version", "queue", "what"),
    [
        ("", "1", "q", "workflow name"),
        ("two words", "1", "q", "workflow name"),
        ("w" * 201, "1", "q", "workflow name"),
        (7, "1", "q", "workflow name"),
        ("w", "", "q", "workflow version"),
        ("w", "1 2", "q", "workflow version"),
        ("w", 1, "q", "workflow version"),
        ("w", "1", "", "queue"),
        ("w", "1", "a/b", "queue"),
    ],
)
def test_names_out_of_their_grammar_are_refused(
    name: Any, version: Any, queue: Any, what: str
) -> None:
    with pytest.raises(InvalidName, match=what) as refused:
        Registry().workflow(name, version=version, queue=queue)
    assert refused.value.what == what


def test_the_version_registered_last_is_the_current_one() -> None:
    registry = Registry()
    registry.workflow("w", version="2")(annotated_otherwise)
    registry.workflow("w", version="1")(fits)
    assert registry.find("w").version == "1"
    assert registry.find("w", "2").version == "2"
    assert registry.find(annotated_otherwise).version == "2"
    assert registry.find(annotated_otherwise, "1").function is fits
    assert registry.get("w", "3") is None


def test_an_unknown_name_tells_what_is_known() -> None:
    registry = Registry()
    registry.workflow("w", version="1")(fits)
    with pytest.raises(UnknownWorkflow) as unknown:
        registry.find("w", "2")
    error = unknown.value
    assert (error.workflow, error.version, error.known) == ("w", "2", ("1",))
    with pytest.raises(UnknownWorkflow, match="'annotated_otherwise'"):
        registry.find(annotated_otherwise)


@pytest.mark.parametrize(
    "thing",
    [7, None, b"w", ["w"], functools.partial(named_ctx, value=1)],
    ids=["number", "none", "bytes", "list", "partial"],
)
def test_what_is_no_workflow_is_unknown(thing: Any) -> None:
    with pytest.raises(UnknownWorkflow):
        Registry().find(thing)


@pytest.mark.parametrize("registry", [None, {}, fits])
async def test_an_engine_needs_a_registry(registry: Any) -> None:
    with pytest.raises(InvalidArgument, match="Registry"):
        async with perdure.open("memory:", registry):
            pass
