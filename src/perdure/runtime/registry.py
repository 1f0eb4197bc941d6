"""Which workflows and steps does this process know? Definitions by name; no execution."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from msgspec import Raw

from perdure.errors import DuplicateRegistration, InvalidArgument, NotSerializable, UnknownWorkflow
from perdure.model import codec
from perdure.model.codec import Decoder, decoder_of
from perdure.model.ids import QUEUE, VERSION, WORKFLOW, check_name
from perdure.runtime.code.context import Context
from perdure.runtime.code.functions import step_function

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Function = Callable[Concatenate[Context, P], Coroutine[Any, Any, T]]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Registered:
    """A function that is found by its name, and called with arguments that crossed a boundary.

    Attributes:
        name: its name.
        function: the function.
        signature: its signature; of a workflow without the context.
        annotations: the types of its parameters and its result.
        decoder: decodes its result to the annotated type, or ``None`` for plain JSON.
    """

    name: str
    function: Callable[..., Any]
    signature: inspect.Signature
    annotations: dict[str, Any]
    decoder: Decoder | None

    @property
    def label(self) -> str:
        """What errors call it."""
        return f"step {self.name!r}"

    @property
    def its_arguments(self) -> str:
        """What errors call its arguments."""
        return f"the arguments of {self.label}"

    def encode_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Raw:
        """Encode arguments as ``[[positional…], {"name": value…}]``.

        Raises:
            InvalidArgument: naming the parameter that is missing, unknown or of another type.
            NotSerializable: naming the parameter that is not JSON.
        """
        bound = self._bind(args, kwargs)
        try:
            encoded = codec.encode(f"the arguments of {self.name}", (args, kwargs))
        except NotSerializable:
            for name, value in bound.arguments.items():
                codec.encode(self._describe(name), value)  # the one at fault is named
            raise
        self.read_arguments(encoded)
        return encoded

    def read_arguments(self, encoded: Raw) -> inspect.BoundArguments:
        """Decode arguments to their annotations.

        Raises:
            InvalidArgument: if they do not fit the function.
        """
        args, kwargs = codec.decode(encoded)
        bound = self._bind(tuple(args), kwargs)
        for name, value in bound.arguments.items():
            bound.arguments[name] = self._convert(name, value)
        return bound

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        try:
            return self.signature.bind(*args, **kwargs)
        except TypeError as error:
            message = f"{self.label} takes {self.signature}: {error}"
            raise InvalidArgument(message) from error

    def _convert(self, name: str, value: Any) -> Any:
        annotation = self.annotations.get(name, inspect.Parameter.empty)
        kind = self.signature.parameters[name].kind
        where = self._describe(name)
        if kind is inspect.Parameter.VAR_POSITIONAL:
            return [codec.convert(where, item, annotation) for item in value]
        if kind is inspect.Parameter.VAR_KEYWORD:
            return {key: codec.convert(where, item, annotation) for key, item in value.items()}
        return codec.convert(where, value, annotation)

    def _describe(self, parameter: str) -> str:
        return f"argument {parameter!r} of {self.label}"


class Step(Registered):
    """A step function that any worker can run."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Workflow(Registered):
    """A registered workflow.

    Attributes:
        version: its version.
        queue: the queue its executions stand on unless they are started on another.
    """

    version: str
    queue: str

    @property
    def label(self) -> str:
        """What errors call it."""
        return f"workflow {self.name!r}"

    def call(self, context: Context, encoded: Raw) -> Coroutine[Any, Any, Any]:
        """Call the function with encoded arguments, decoded to their annotations.

        Raises:
            InvalidArgument: if the arguments do not fit the function any more.
        """
        bound = self.read_arguments(encoded)
        coroutine: Coroutine[Any, Any, Any] = self.function(context, *bound.args, **bound.kwargs)
        return coroutine


class Registry:
    """The workflows that a process knows, and the steps that it can run for others.

    Example:
        ``registry = Registry()`` and ``@registry.workflow("invoice", version="1")`` above an async
        function whose first parameter is the `Context`.
    """

    def __init__(self) -> None:
        """Make an empty registry."""
        self._workflows: dict[tuple[str, str], Workflow] = {}
        self._latest: dict[str, Workflow] = {}
        self._by_function: dict[Callable[..., Any], Workflow] = {}
        self._steps: dict[str, Step] = {}
        self._step_of: dict[Callable[..., Any], Step] = {}

    def workflow(
        self, name: str, *, version: str, queue: str = "default"
    ) -> Callable[[Function[P, T]], Function[P, T]]:
        """Register an async function as a version of a workflow. Use it as a decorator.

        Args:
            name: the workflow's name; letters, digits, ``_ . -``.
            version: a text; an execution keeps the version it started with.
            queue: the queue its executions stand on unless they are started on another.

        Returns:
            A decorator that registers a function and returns it unchanged.

        Raises:
            InvalidName: if the name, version or queue is out of its grammar.
            InvalidArgument: if the function is not async or its first parameter is no context.
            DuplicateRegistration: if the name and version are taken.
        """
        check_name("workflow name", name, WORKFLOW)
        check_name("workflow version", version, VERSION)
        check_name("queue", queue, QUEUE)

        def register(function: Function[P, T]) -> Function[P, T]:
            signature, annotations = _check_function(name, function)
            if (name, version) in self._workflows:
                raise DuplicateRegistration(name, version)
            decoder = decoder_of(annotations["return"]) if "return" in annotations else None
            workflow = Workflow(
                name=name,
                version=version,
                queue=queue,
                function=function,
                signature=signature,
                annotations=annotations,
                decoder=decoder,
            )
            self._workflows[name, version] = workflow
            self._latest[name] = workflow
            self._by_function[function] = workflow
            return function

        return register

    def step(self, name: str | None = None) -> Callable[[F], F]:
        """Register a function as a step that any worker can run. Use it as a decorator.

        ``ctx.step(function, queue="gpu")`` then runs it detached: a worker that takes work from the
        queue ``gpu``, and has the step registered, runs it.

        Args:
            name: what other workers find it by; the function's own name by default.

        Returns:
            A decorator that registers a function, sync or async, and returns it unchanged.

        Raises:
            InvalidName: if the name is out of its grammar.
            InvalidArgument: if it is no function.
            DuplicateRegistration: if the name is taken.

        Example:
            ``@registry.step()`` above ``def render(path: str) -> str: …``
        """
        if name is not None:
            check_name("step name", name, WORKFLOW)

        def register(function: F) -> F:
            known = step_function(function)
            chosen = check_name("step name", known.name if name is None else name, WORKFLOW)
            if chosen in self._steps:
                raise DuplicateRegistration(chosen)
            step = Step(
                name=chosen,
                function=function,
                signature=inspect.signature(function),
                annotations=codec.hints_of(function),
                decoder=known.decoder,
            )
            self._steps[chosen] = self._step_of[function] = step
            return function

        return register

    @property
    def steps(self) -> Mapping[str, Step]:
        """The registered steps by name."""
        return self._steps

    def step_of(self, function: Callable[..., Any]) -> Step | None:
        """Give the step that a function is registered as, or ``None``."""
        return self._step_of.get(function) if isinstance(function, Hashable) else None

    @property
    def known(self) -> frozenset[tuple[str, str]]:
        """The registered pairs of name and version."""
        return frozenset(self._workflows)

    def get(self, name: str, version: str) -> Workflow | None:
        """Give the workflow registered under name and version, or ``None``."""
        return self._workflows.get((name, version))

    def find(self, workflow: str | Callable[..., Any], version: str | None = None) -> Workflow:
        """Find what to start: by function or by name, the version registered last by default.

        Raises:
            UnknownWorkflow: if nothing registered fits.
        """
        if not isinstance(workflow, str):
            found = self._by_function.get(workflow) if isinstance(workflow, Hashable) else None
            if found is None:
                raise UnknownWorkflow(getattr(workflow, "__name__", repr(workflow)), version)
            if version is None or version == found.version:
                return found
            workflow = found.name
        chosen = (
            self._latest.get(workflow)
            if version is None
            else self._workflows.get((workflow, version))
        )
        if chosen is None:
            known = tuple(v for name, v in self._workflows if name == workflow)
            raise UnknownWorkflow(str(workflow), version, known)
        return chosen


def _check_function(
    name: str, function: Callable[..., Any]
) -> tuple[inspect.Signature, dict[str, Any]]:
    """Refuse what cannot be driven; give the signature without the context."""
    if not inspect.iscoroutinefunction(function):
        message = (
            f"workflow {name!r}: {getattr(function, '__name__', function)!r} is not an async "
            "function; define it with `async def`"
        )
        raise InvalidArgument(message)
    annotations = codec.hints_of(function)
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if not parameters or not _is_context(parameters[0], annotations):
        message = (
            f"workflow {name!r}: the first parameter of {function.__name__!r} is the context; "
            "write `async def function(ctx: Context, …)`"
        )
        raise InvalidArgument(message)
    return signature.replace(parameters=parameters[1:]), annotations


def _is_context(parameter: inspect.Parameter, annotations: dict[str, Any]) -> bool:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if parameter.kind not in positional:
        return False
    annotation = annotations.get(parameter.name, parameter.annotation)
    if annotation is inspect.Parameter.empty:
        return parameter.name == "ctx"
    return annotation is Context or annotation in ("Context", "perdure.Context")
