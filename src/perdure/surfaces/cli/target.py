"""On what does a command work? Finds the registry and opens the store that the user named."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import typer

import perdure
from perdure.errors import NotFound, PerdureError
from perdure.runtime.config import EngineConfig
from perdure.runtime.engine import Engine
from perdure.runtime.registry import Registry
from perdure.surfaces.cli.failures import failures

T = TypeVar("T")

CONFIG: ContextVar[str | None] = ContextVar("perdure_config", default=None)
"""What ``--config`` names."""

_FILE = "sqlite:///"


class AppBroken(PerdureError):
    """The module of ``--app`` was found and could not be imported."""


def load_registry(app: str | None) -> Registry:
    """Import the registry that ``--app`` names; the current directory is looked in first.

    Raises:
        AppBroken: if the module was found and could not be imported.
    """
    if not app:
        message = (
            "no registry is named; give module:attr, for example app:registry, or set PERDURE_APP"
        )
        raise typer.BadParameter(message, param_hint="--app")
    return _load(app, Registry, "--app", default="registry")


def configured() -> EngineConfig:
    """Import the settings that ``--config`` names, or give the defaults.

    Raises:
        AppBroken: if the module was found and could not be imported.
    """
    named = CONFIG.get()
    if not named:
        return EngineConfig()
    return _load(named, EngineConfig, "--config", default="config")


def _load(named: str, kind: type[T], option: str, *, default: str) -> T:
    """Import what an option names."""
    path, _, attribute = named.partition(":")
    attribute = attribute or default
    if path.endswith(".py") or not all(part.isidentifier() for part in path.split(".")):
        message = f"{named!r} is not of the form module:attr; app:{default} is {default} in app.py"
        raise typer.BadParameter(message, param_hint=option)
    if (here := os.getcwd()) not in sys.path:  # noqa: PTH109 - sys.path holds texts
        sys.path.insert(0, here)
    module = _import(path, here, option)
    found = getattr(module, attribute, None)
    if found is None:
        message = (
            f"module {path!r} has no {attribute!r}; name the {kind.__name__} in it as {path}:NAME"
        )
        raise typer.BadParameter(message, param_hint=option)
    if not isinstance(found, kind):
        message = (
            f"{path}:{attribute} is of type {type(found).__name__}; name a perdure.{kind.__name__}"
        )
        raise typer.BadParameter(message, param_hint=option)
    return found


def _import(path: str, here: str, option: str) -> object:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{path}.".startswith(f"{error.name}."):
            message = f"there is no module {error.name!r} in {here} or among what is installed"
            raise typer.BadParameter(message, param_hint=option) from error
        raise _failed(path, error) from error
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        raise _failed(path, error) from error


def _failed(path: str, error: BaseException) -> AppBroken:
    message = f"module {path!r} cannot be imported: {type(error).__name__}: {error}"
    return AppBroken(f"{message}; correct it, or see where with --debug")


def check_store(url: str) -> str:
    """Refuse a store that no other process could ever look into."""
    if url == "memory:":
        message = (
            f"a store in memory ends with the command; give a file, for example {_FILE}perdure.db"
        )
        raise typer.BadParameter(message, param_hint="--store")
    return url


def require_store(url: str) -> str:
    """Refuse a store that does not exist yet: to look must not create one.

    Raises:
        NotFound: if there is no such file.
    """
    check_store(url)
    if url.startswith(_FILE):
        path = Path(url.removeprefix(_FILE))
        if not path.exists():
            message = f"there is no store at {path}; start a workflow first, or check --store"
            raise NotFound(message)
    return url


def look(url: str, work: Callable[[Engine], Coroutine[Any, Any, None]], *, debug: bool) -> None:
    """Do a command's work on an engine that knows no workflow, on a store that exists."""

    async def opened() -> None:
        async with perdure.open(require_store(url), Registry(), config=configured()) as engine:
            await work(engine)

    with failures(debug=debug):
        asyncio.run(opened())
