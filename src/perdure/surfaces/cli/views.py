"""How does an execution look? Each view for a person, as tab-separated cells, and in JSON.

For a person a view is calm: aligned, one line for one thing, cropped at the edge and never wrapped;
an execution id is always whole. The cells of a pipe are complete and in a fixed order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from rich.table import Table
from rich.text import Text

from perdure.model.entry import Entry
from perdure.model.execution import ExecutionRow, ExecutionStatus, FrameNode
from perdure.model.queue_task import QueueTask
from perdure.model.review import DecideResult, Decision
from perdure.ports.projection import Review
from perdure.ports.store import StoreInfo
from perdure.surfaces.cli import wording
from perdure.surfaces.cli.output import STATUS_STYLES, Output, assemble

WIDE = 120
"""From so many columns on, a view has room for what is good to know, too."""
CROPPED = frozenset({"workflow", "key", "detail", "queue", "payload", "decision", "holder"})
FID_WIDTH = 16


def show_executions(out: Output, rows: Sequence[ExecutionRow], now: datetime) -> None:
    """Show executions, one on each line.

    The cells of a pipe are: eid, status, workflow, version, created, key, detail.
    """
    if not out.terminal:
        for row in rows:
            if out.as_json:
                out.document(row)
            else:
                created = wording.instant(row.created_at)
                version, detail = row.version, wording.detail(row)
                out.row(
                    row.eid, row.status, row.workflow, version, created, row.dispatch_key, detail
                )
        return
    wide = out.width >= WIDE
    table = _table("eid", "status", "workflow", "created", *(("key", "detail") if wide else ()))
    for row in rows:
        cells = [
            Text(str(row.eid)),
            _status(row.status),
            _cropped(f"{row.workflow} {row.version}"),
            Text(wording.ago(row.created_at, now), "dim"),
        ]
        if wide:
            cells += [_cropped(row.dispatch_key or ""), _cropped(wording.detail(row))]
        table.add_row(*cells)
    out.table(table)


def show_execution(out: Output, row: ExecutionRow, now: datetime) -> None:
    """Show one execution as a list of its facts; a pipe gets every label, also without a fact."""
    if out.as_json:
        out.document(row)
        return
    completed = row.status is ExecutionStatus.COMPLETED
    who = {
        "eid": str(row.eid),
        "key": row.dispatch_key or "",
        "started by": str(row.created_by),
        "parent": f"{row.parent.eid} {row.parent.fid}" if row.parent is not None else "",
        "queue": row.queue,
        "tags": wording.tags(row),
        "arguments": wording.arguments(row.args),
    }
    when = {
        "created": row.created_at,
        "started": row.started_at,
        "updated": row.updated_at,
        "ended": row.ended_at,
    }
    where = {
        "epoch": str(row.epoch),
        "worker": row.worker_id or "",
        "waits on": wording.conditions(row.suspended_on),
        "blocked": row.blocked or "",
        "stopped": wording.stopped(row),
        "continued as": str(row.continued_as or ""),
        "result": wording.json_text(row.result) if completed else "",
        "error": wording.error_text(row.error),
    }
    if out.terminal:
        style = STATUS_STYLES.get(row.status, "")
        out.text((f"{row.workflow} {row.version}", "bold"), "  ", (row.status, style))
        told = {
            label: f"{wording.calendar(at)}  {wording.ago(at, now)}" if at else ""
            for label, at in when.items()
            if label != "updated" or row.ended_at is None
        }
        show_facts(out, {**who, **told, **where})
        if row.blocked is not None:
            out.text((f"once its cause is gone: perdure resume {row.eid}", "dim"))
    else:
        head = {"workflow": row.workflow, "version": row.version, "status": row.status.value}
        show_facts(
            out, {**head, **who, **{k: wording.instant(at) for k, at in when.items()}, **where}
        )


def show_facts(out: Output, facts: dict[str, str]) -> None:
    """Show labels and facts; a person sees no label without a fact, and long facts as a whole."""
    if not out.terminal:
        for label, fact in facts.items():
            out.row(label, fact)
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for label, fact in facts.items():
        if fact:
            table.add_row(label, assemble(fact))
    out.table(table)


class JournalView:
    """Shows entries one by one, as they come; for a person, under a heading for each epoch."""

    def __init__(self, out: Output, fids: Iterable[str] = ()) -> None:
        """Prepare a view; `fids` are those that it is known to show, to make room for them."""
        self._out = out
        self._fid_width = max(map(len, fids), default=FID_WIDTH)
        self._epoch: int | None = None

    def show(self, entry: Entry) -> None:
        """Show one entry.

        The cells of a pipe are: seq, at, epoch, type, fid, attempt, facts.
        """
        out = self._out
        if out.as_json:
            out.document(entry)
        elif out.terminal:
            self._show_line(entry)
        else:
            at, attempt = wording.instant(entry.at), entry.attempt or None
            facts = wording.facts(entry)
            out.row(entry.seq, at, entry.epoch, entry.type, entry.fid, attempt, facts)

    def _show_line(self, entry: Entry) -> None:
        if entry.epoch != self._epoch:
            self._head(entry)
        fine = self._out.width >= WIDE
        time = wording.clock(entry.at, fine=fine)
        facts = wording.facts(entry, lambda at: wording.later(at, entry.at, fine=fine))
        attempt = f"attempt {entry.attempt}  " if entry.attempt > 1 else ""
        verb = entry.type.rpartition(".")[2]
        self._out.line(
            assemble(
                (f"{entry.seq:>4}  {time}  ", "dim"),
                (f"{entry.type:<20}  ", STATUS_STYLES.get(verb, "")),
                f"{entry.fid:<{self._fid_width}}  ",
                f"{attempt}{facts}",
            )
        )

    def _head(self, entry: Entry) -> None:
        if self._epoch is not None:
            self._out.text("")
        self._epoch = entry.epoch
        day = f"{entry.at.astimezone(UTC):%Y-%m-%d}"
        self._out.text(
            (f"epoch {entry.epoch}", "bold"), (f"  {entry.provenance.actor.id}  {day}", "dim")
        )


def show_frames(out: Output, root: FrameNode, now: datetime) -> None:
    """Show the tree of the frames of an execution.

    The cells of a pipe are: fid, kind, status, attempts, started, ended, detail, worker. On a
    terminal the workers are shown if steps have run on several.
    """
    if out.as_json:
        out.document(root)
        return
    nodes = list(_walk(root))
    several = len({node.worker_id for _, node in nodes if node.worker_id is not None}) > 1
    workers = ["worker"] if several else []
    table = _table("frame", "kind", "status", "attempts", "time", *workers, "detail")
    for guide, node in nodes:
        detail = wording.outcome(node)
        if out.terminal:
            span = wording.span(node, now)
            table.add_row(
                assemble((guide, "dim"), node.fid.rpartition("/")[2]),
                Text(node.kind, "dim"),
                _status(node.status),
                Text(str(node.attempts)),
                Text("" if span is None else wording.duration(span)),
                *([Text(node.worker_id or "", "dim")] if several else []),
                _cropped(detail),
            )
        else:
            times = (wording.instant(node.started_at), wording.instant(node.ended_at))
            worker = node.worker_id or ""
            out.row(node.fid, node.kind, node.status, node.attempts, *times, detail, worker)
    if out.terminal:
        out.table(table)


def show_store(out: Output, info: StoreInfo) -> None:
    """Show what a store is and holds."""
    if out.as_json:
        out.document(info)
        return
    size = "" if info.size_bytes is None else str(info.size_bytes)
    facts = {
        "store": info.url,
        "kind": info.kind,
        "schema": str(info.schema_version),
        "size": wording.size(info.size_bytes) if out.terminal else size,
        **{status.value: str(info.executions.get(status, 0)) for status in ExecutionStatus},
        "ready tasks": str(info.ready_tasks),
        "delayed tasks": str(info.delayed_tasks),
        "timers": str(info.timers),
        "sessions": str(info.sessions),
    }
    show_facts(out, facts)


def show_tasks(out: Output, tasks: Sequence[QueueTask], now: datetime) -> None:
    """Show the tasks of a queue, one on each line.

    The cells of a pipe are: task, state, kind, enqueued, not before, holder, reason, payload.
    """
    if not out.terminal:
        for task in tasks:
            if out.as_json:
                out.document(task)
                continue
            times = (wording.instant(task.enqueued_at), wording.instant(task.not_before))
            payload = "" if task.payload is None else wording.json_text(task.payload)
            out.row(task.task_id, task.state, task.kind, *times, task.holder, task.reason, payload)
        return
    table = _table("execution", "kind", "state", "since", "holder", "payload")
    for task in tasks:
        table.add_row(
            Text(str(task.eid)),
            Text(task.kind),
            _status(task.state),
            Text(wording.ago(task.enqueued_at, now), "dim"),
            _cropped(task.holder or ""),
            _cropped("" if task.payload is None else wording.json_text(task.payload)),
        )
    out.table(table)


def show_reviews(out: Output, reviews: Sequence[Review], now: datetime, *, every: bool) -> None:
    """Show reviews, one on each line; the decisions, too, if not only what waits is shown.

    The cells of a pipe are: rid, status, queue, requested, deadline, payload, decision.
    """
    if not out.terminal:
        for review in reviews:
            if out.as_json:
                out.document(review)
                continue
            times = (wording.instant(review.requested_at), wording.instant(review.deadline))
            payload, decision = wording.json_text(review.payload), wording.decision(review)
            out.row(review.rid, review.status, review.queue, *times, payload, decision)
        return
    headers = ["review", "queue", "since", "status" if every else "deadline", "payload"]
    table = _table(*headers, *(["decision"] if every else []))
    for review in reviews:
        left = Text(wording.left(review.deadline, now))
        cells = [
            Text(review.rid),
            _cropped(review.queue),
            Text(wording.ago(review.requested_at, now), "dim"),
            _status(review.status) if every else left,
            _cropped(wording.json_text(review.payload)),
        ]
        table.add_row(*cells, *([_cropped(wording.decision(review))] if every else []))
    out.table(table)


def show_decision(out: Output, result: DecideResult) -> None:
    """Show the decision that counts, and whether it is the one that was just given."""
    decision: Decision = result.decision
    if out.as_json:
        out.document({**wording.plain(decision), "first": result.first})
        return
    at = wording.calendar(decision.at) if out.terminal else wording.instant(decision.at)
    facts = {
        "review": decision.rid,
        "verdict": decision.verdict,
        "data": "" if decision.data is None else wording.json_text(decision.data),
        "decided by": str(decision.by),
        "decided": at,
    }
    show_facts(out, facts)


def _walk(node: FrameNode, guide: str = "", below: str = "") -> Iterator[tuple[str, FrameNode]]:
    """Give a tree line by line, each with the lines that lead to it."""
    yield guide, node
    for child in node.children:
        last = child is node.children[-1]
        yield from _walk(
            child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")
        )


def _status(status: str) -> Text:
    return Text(status, STATUS_STYLES.get(status, ""))


def _cropped(text: str) -> Text:
    made = assemble(text)
    made.no_wrap, made.overflow = True, "ellipsis"
    return made


def _table(*headers: str) -> Table:
    """Make a table without lines; where it is narrow, only `CROPPED` columns give way."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for header in headers:
        right = header in {"attempts", "time"}
        table.add_column(
            header, justify="right" if right else "left", no_wrap=header not in CROPPED
        )
    return table
