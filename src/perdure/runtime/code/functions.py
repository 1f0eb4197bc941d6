"""What does perdure need to know of a user's function? Its name, how it runs, what it returns."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from perdure.errors import InvalidArgument
from perdure.model.codec import Decoder, decoder_of, hints_of


@dataclass(frozen=True, slots=True)
class StepFunction:
    """What is known of a step function.

    Attributes:
        name: its name, the default name of its frames.
        is_async: whether it is run as a task; else in a thread.
        decoder: decodes its memo to the annotated result, or ``None`` for plain JSON.
    """

    name: str
    is_async: bool
    decoder: Decoder | None


_KNOWN: WeakKeyDictionary[Any, StepFunction] = WeakKeyDictionary()


def step_function(function: Callable[..., Any]) -> StepFunction:
    """Tell what is to be known of a step function.

    Raises:
        InvalidArgument: if it is no function, for example the result of calling one.
    """
    key = getattr(function, "__func__", function)
    try:
        known = _KNOWN.get(key)
    except TypeError:  # not hashable, or no weak reference can be made
        return _inspect(function)
    if known is None:
        known = _KNOWN[key] = _inspect(function)
    return known


def _inspect(function: Callable[..., Any]) -> StepFunction:
    if not callable(function):
        if inspect.iscoroutine(function):
            function.close()
        message = (
            f"ctx.step was given {function!r}; pass the function and its arguments: "
            "ctx.step(function, argument)"
        )
        raise InvalidArgument(message)
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__name__", type(inner).__name__)
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        inner = type(inner).__call__  # an object that can be called
    decoder = decoder_of(hints_of(inner).get("return")) if _annotates_result(inner) else None
    return StepFunction(name, inspect.iscoroutinefunction(inner), decoder)


def _annotates_result(function: Any) -> bool:
    return "return" in getattr(function, "__annotations__", ())
