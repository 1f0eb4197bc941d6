"""Which store does a URL mean? The one module that knows every layer and puts them together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from perdure.errors import InvalidArgument
from perdure.model.provenance import Site
from perdure.ports.clock import Clock, SystemClock
from perdure.ports.projection import Projection
from perdure.ports.store import Store
from perdure.projection import SqliteProjection
from perdure.runtime.config import EngineConfig
from perdure.runtime.engine import Engine
from perdure.runtime.registry import Registry
from perdure.stores.sqlite import open_sqlite

FORMS = "memory: or sqlite:///perdure.db"


async def open_store(url: str) -> Store:
    """Open the store that a URL means.

    Raises:
        InvalidArgument: if the URL is of no known form.
        StoreUnavailable: if the store cannot be opened.
    """
    if isinstance(url, str) and (url == "memory:" or url.startswith("sqlite:")):
        return await open_sqlite(url)
    message = f"{url!r} is not a store URL; give {FORMS}"
    raise InvalidArgument(message)


def make_projection(store: Store, clock: Clock) -> Projection:
    """Make the projection of a store: in a file beside its file, or in memory as it is."""
    if not store.shared:
        return SqliteProjection(store, None, clock)
    path = Path(store.url.removeprefix("sqlite:///")).absolute()
    return SqliteProjection(store, f"{path}-projection", clock)


@asynccontextmanager
async def open(  # noqa: A001 - `perdure.open` is the name that users know
    url: str,
    registry: Registry,
    *,
    config: EngineConfig | None = None,
    site: Site | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Engine]:
    """Open an engine on a store, and close it at the end of the ``async with`` block.

    Args:
        url: ``memory:``, or ``sqlite:///perdure.db`` (``sqlite:////`` before an absolute path).
        registry: the workflows that this process knows; an empty one is enough to look and signal.
        config: settings; the defaults fit one machine.
        site: where this process runs, for provenance; found out by default.
        clock: the source of time; the machine's by default.

    Raises:
        InvalidArgument: if the URL is of no known form.
        StoreUnavailable: if the store cannot be opened, `SchemaTooNew` among others.

    Example:
        ``async with perdure.open("sqlite:///perdure.db", registry) as engine: …``
    """
    if not isinstance(registry, Registry):
        message = f"registry is {registry!r}; give the Registry that your workflows are in"
        raise InvalidArgument(message)
    clock = clock or SystemClock()
    store = await open_store(url)
    try:
        engine = Engine(
            store,
            registry,
            projection=make_projection(store, clock),
            config=config or EngineConfig(),
            site=site or Site.here(),
            clock=clock,
        )
    except BaseException:
        await store.close()
        raise
    try:
        yield engine
    finally:
        await engine.close()
