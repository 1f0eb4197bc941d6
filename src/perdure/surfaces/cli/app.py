"""Which commands are there? Puts them together; each is written where its kind is."""

from __future__ import annotations

from typing import Annotated

import typer

import perdure
from perdure.surfaces.cli import consuming, looking, operating, reviewing, sample, steering, working
from perdure.surfaces.cli.failures import Commands
from perdure.surfaces.cli.target import CONFIG
from perdure.surfaces.cli.typed import ConfigOption

app = typer.Typer(
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
reviews_app = typer.Typer(help="See what waits for a person, and decide.", rich_markup_mode=None)
queues_app = typer.Typer(help="Look at queues.", rich_markup_mode=None)
store_app = typer.Typer(help="Look at a store as a whole.", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def perdure_command(
    context: typer.Context,
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Run durable workflows, look at them and steer them.

    Answers are tables on a terminal, tab-separated text in a pipe, and with --json one JSON
    document per line. The exit code is 0 when it is done, 1 when it was refused or something was
    not found, 2 when what was typed cannot be meant.
    """
    CONFIG.set(config)
    if version:
        typer.echo(f"perdure {perdure.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("init")(sample.init)
app.command("worker")(working.worker)
# What is behind the command that it runs are arguments of that one.
app.command("consume", context_settings={"allow_interspersed_args": False})(consuming.consume)
app.command("start")(steering.start)
app.command("status")(looking.status)
app.command("list")(looking.list_executions)
app.command("result")(looking.result)
app.command("watch")(looking.watch)
app.command("stream")(looking.stream)
app.command("signal")(steering.signal)
for operation in (
    operating.cancel,
    operating.terminate,
    operating.resume,
    operating.migrate,
    operating.retry,
    operating.fork,
    operating.broadcast,
):
    app.command(operation.__name__)(operation)
reviews_app.command("list")(reviewing.list_reviews)
reviews_app.command("decide")(reviewing.decide)
app.add_typer(reviews_app, name="reviews")
queues_app.command("show")(looking.show_queue)
app.add_typer(queues_app, name="queues")
store_app.command("info")(looking.store_info)
app.add_typer(store_app, name="store")
