"""How is a run shown? A bar or lines while it goes on, a table and a verdict at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self
from uuid import UUID

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.invoices.audit import Tally

PROBLEMS_MAX = 20


class Display:
    """Shows how far the run is: a bar on a terminal, plain lines elsewhere."""

    def __init__(self, total: int, console: Console) -> None:
        self.total = total
        self._console = console
        self._shown = -1
        self._bar = Progress(
            TextColumn("invoices"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("invoices", total=total)

    def __enter__(self) -> Self:
        """Begin to show."""
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave what is shown where it is."""
        self._bar.stop()

    def show(self, ended: int) -> None:
        """Show that so many have ended; in lines, one for every tenth of all."""
        self._bar.update(self._task, completed=ended)
        tenth = ended * 10 // self.total
        if not self._console.is_terminal and tenth > self._shown:
            self._shown = tenth
            self._console.print(f"{ended} of {self.total} invoices", highlight=False)

    def note(self, text: str) -> None:
        """Say what happened."""
        self._console.print(text, style="yellow", highlight=False)


def print_tally(numbers: Tally, elapsed_s: float, console: Console) -> None:
    """Print the table."""
    table = Table(title=f"{numbers.rows} rows in {elapsed_s:.0f} s", title_justify="left")
    table.add_column("What")
    table.add_column("How many", justify="right")
    for heading, lines in _sections(numbers):
        table.add_section()
        table.add_row(heading, "", style="bold")
        for what, count in lines.items():
            table.add_row(f"  {what}", f"{count:,}" if isinstance(count, int) else count)
    console.print(table)


def _sections(numbers: Tally) -> Iterator[tuple[str, dict[str, int | str]]]:
    yield (
        "Invoices",
        {
            "completed": numbers.completed,
            **{f"refused: {why}": count for why, count in sorted(numbers.refused.items())},
            "rows sent again, started once": numbers.duplicates,
        },
    )
    yield (
        "Kills survived",
        {
            "workers killed": len(numbers.interrupted),
            "executions running at each": " + ".join(map(str, numbers.interrupted)),
            "executions recovered by another worker": numbers.recovered,
            "executions with more than one epoch": numbers.epochs,
            "steps replayed from the journal, not run again": numbers.replayed,
            "attempts that a kill cut off": numbers.cut_off,
            "attempts that failed and were retried": numbers.retried,
        },
    )
    yield (
        "Ledger",
        {
            "calls": numbers.calls,
            "calls that it failed": numbers.failed_calls,
            "calls that were slow": numbers.slow_calls,
            "duplicates that it refused": numbers.refused_duplicates,
            "charges": numbers.charges,
            "charged, EUR": f"{numbers.cents / 100:,.2f}",
            "invoices charged twice": numbers.charged_twice,
        },
    )


def print_verdict(problems: Sequence[str], console: Console) -> None:
    """Print what the audit found."""
    if not problems:
        console.print(
            "[bold green]All is well:[/] every row was charged or refused for its reason, and "
            "no invoice was charged twice."
        )
        return
    console.print(f"[bold red]The audit found {len(problems)} problems:[/]")
    for problem in problems[:PROBLEMS_MAX]:
        console.print(f"  {problem}", highlight=False, markup=False, soft_wrap=True)
    if len(problems) > PROBLEMS_MAX:
        console.print(f"  and {len(problems) - PROBLEMS_MAX} more")


def print_hint(eid: UUID | None, store_url: str, console: Console) -> None:
    """Print what to look at in a store that was kept; `eid` is an execution that was cut off."""
    commands = ["perdure list"]
    if eid is not None:
        commands.append(f"perdure status {eid} --journal")
    console.print("Look around, for example at an invoice with a step that a kill cut off:")
    for command in commands:
        console.print(f"  {command} --store {store_url}", highlight=False, soft_wrap=True)
