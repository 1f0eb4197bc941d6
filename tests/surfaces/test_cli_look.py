"""Does one see what there is? In a pipe and in JSON; how it looks is in another module."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.surfaces.support import Cli, Filled

NOBODY = "6b1f2a5e-0c0f-4d43-9a53-8f4f5f5f0a11"
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
READING: list[list[str]] = [
    ["status", NOBODY],
    ["status", NOBODY, "--journal"],
    ["status", NOBODY, "--frames"],
    ["list"],
    ["result", NOBODY],
    ["watch", NOBODY],
    ["stream", NOBODY, "progress"],
    ["signal", NOBODY, "approval", "yes"],
    ["store", "info"],
]


def facts(text: str) -> dict[str, str]:
    """Read lines of a label and a fact."""
    return dict(line.split("\t") for line in text.splitlines())


def cells(text: str) -> list[list[str]]:
    """Read tab-separated lines."""
    return [line.split("\t") for line in text.splitlines()]


@pytest.mark.parametrize("command", READING, ids=lambda command: "-".join(command[::2]))
def test_to_look_does_not_create_a_store(cli: Cli, command: list[str]) -> None:
    path = Path(cli.url.removeprefix("sqlite:///"))
    sentence = cli.complaint(1, *command)
    assert f"no store at {path}" in sentence
    assert "start a workflow first" in sentence
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize("command", READING[:3] + READING[4:8], ids=lambda c: "-".join(c[::2]))
def test_an_unknown_execution_is_refused_and_a_bad_id_is_usage(
    filled: Filled, command: list[str]
) -> None:
    cli, eid = filled.cli, filled.eids["suspended"]
    assert f"no execution has the id {NOBODY}" in cli.complaint(1, *command)
    for bad in ("nonsense", eid[:8], eid.replace("-", ""), ""):
        wrong = [bad if word == NOBODY else word for word in command]
        assert "not an execution id" in cli.complaint(2, *wrong)


@pytest.mark.parametrize("command", [*READING, ["start", "approve"]], ids=lambda c: "-".join(c[:2]))
def test_a_store_that_cannot_be_meant_is_a_usage_error(cli: Cli, command: list[str]) -> None:
    for url in ("memory:", "perdure.db", "nosuch://host/db", ""):
        sentence = cli.complaint(2, *command, "--store", url)
        assert "sqlite:///perdure.db" in sentence


@pytest.mark.parametrize("command", READING, ids=lambda command: "-".join(command[::2]))
def test_a_file_that_is_no_store_is_refused_and_kept(
    cli: Cli, command: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear Ada,\n" * 500, encoding="utf-8")
    cli.complaint(1, *command, "--store", f"sqlite:///{path}")
    assert path.read_text(encoding="utf-8") == "Dear Ada,\n" * 500


def test_a_store_of_a_newer_perdure_is_refused(cli: Cli, tmp_path: Path) -> None:
    cli.done("start", "approve")
    with closing(sqlite3.connect(tmp_path / "test.db")) as connection, connection:
        connection.execute("UPDATE meta SET value = '999' WHERE key = 'schema_version'")
    for command in (["list"], ["start", "approve"], ["worker", "--once"]):
        assert "upgrade perdure" in cli.complaint(1, *command)


def test_a_store_in_no_directory_is_refused_and_none_is_made(cli: Cli, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'nowhere' / 'test.db'}"
    assert "nowhere" in cli.complaint(1, "start", "approve", "--store", url)
    assert not (tmp_path / "nowhere").exists()


def test_status_tells_every_fact_in_a_pipe(cli: Cli) -> None:
    eid = cli.done("start", "greet", "Ada", "--key", "greet:ada", "--by", "ada@example.com")
    cli.run_worker()
    told = facts(cli.done("status", eid))
    assert told["workflow"] == "greet"
    assert told["version"] == "1"
    assert told["status"] == "completed"
    assert told["eid"] == eid
    assert told["key"] == "greet:ada"
    assert told["started by"] == "human:ada@example.com"
    assert told["arguments"] == '"Ada"'
    assert told["epoch"] == "1"
    assert told["result"] == '"Hello, Ada!"'
    assert told["error"] == told["worker"] == told["blocked"] == told["waits on"] == ""
    for label in ("created", "started", "updated", "ended"):
        assert INSTANT.fullmatch(told[label])


def test_status_tells_what_an_execution_waits_on_and_why_it_ended(filled: Filled) -> None:
    cli, eids = filled
    suspended = facts(cli.done("status", eids["suspended"]))
    assert suspended["waits on"] == "channel:approval"
    assert suspended["ended"] == suspended["result"] == ""
    failed = facts(cli.done("status", eids["failed"]))
    assert failed["error"].startswith("StepFailed: ")
    assert r"\u001b[31mno\tway\nat all" in failed["error"]
    blocked = facts(cli.done("status", eids["blocked"]))
    assert blocked["waits on"] == "operator"
    assert "awaited" in blocked["blocked"]
    pending = facts(cli.done("status", eids["pending"]))
    assert (pending["queue"], pending["started"]) == ("slow", "")


def test_status_in_json_is_the_row(filled: Filled) -> None:
    (row,) = filled.cli.documents("status", filled.eids["failed"])
    assert row["error"]["type"] == "StepFailed"
    assert INSTANT.fullmatch(row["created_at"])
    assert row["suspended_on"] == []


def test_status_lists_the_journal(filled: Filled) -> None:
    cli, eid = filled.cli, filled.eids["retried"]
    rows = cells(cli.done("status", eid, "--journal"))
    assert [row[0] for row in rows] == [str(seq) for seq in range(1, len(rows) + 1)]
    assert all(INSTANT.fullmatch(row[1]) and row[2] == "1" for row in rows)
    assert [(row[3], row[4], row[5], row[6]) for row in rows] == [
        ("execution.started", "root", "", ""),
        ("frame.started", "root/hesitate#0", "1", "step"),
        ("frame.failed", "root/hesitate#0", "1", "ValueError: not yet  retry"),
        ("frame.started", "root/hesitate#0", "2", "step"),
        ("frame.completed", "root/hesitate#0", "2", "2"),
        ("execution.completed", "root", "", "2"),
    ]
    documents = cli.documents("status", eid, "--journal")
    assert [one["seq"] for one in documents] == list(range(1, len(rows) + 1))
    assert documents[1]["provenance"]["code"]["workflow"] == "retry"


def test_status_shows_the_frames(filled: Filled) -> None:
    cli, eid = filled.cli, filled.eids["suspended"]
    root, receive = cells(cli.done("status", eid, "--frames"))
    assert root[:4] == ["root", "root", "suspended", "1"]
    assert receive[:4] == ["root/receive#0", "receive", "waiting", "1"]
    assert INSTANT.fullmatch(receive[4])
    assert receive[5:] == ["", "waits on channel:approval", ""]
    (tree,) = cli.documents("status", eid, "--frames")
    assert [child["fid"] for child in tree["children"]] == ["root/receive#0"]


def test_journal_and_frames_are_two_views(cli: Cli) -> None:
    assert "one of them" in cli.complaint(2, "status", NOBODY, "--journal", "--frames")


def test_list_shows_the_newest_first(filled: Filled) -> None:
    cli, eids = filled
    rows = cells(cli.done("list"))
    assert [row[0] for row in rows] == list(reversed(eids.values()))
    pending, blocked, suspended, _, failed, completed = rows
    assert pending[1:4] == ["pending", "approve", "2"]
    assert INSTANT.fullmatch(pending[4])
    assert pending[5:] == ["", "on queue slow"]
    assert blocked[1] == "suspended"
    assert blocked[6].startswith("blocked: ")
    assert suspended[5:] == ["order:7", "waits on channel:approval"]
    assert failed[6].startswith("StepFailed: ")
    assert completed[6] == '"Hello, Ada!"'
    assert [row["eid"] for row in cli.documents("list")] == [row[0] for row in rows]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--status", "failed"], ["failed"]),
        (["--status", "failed", "--status", "pending"], ["pending", "failed"]),
        (["--workflow", "greet"], ["completed"]),
        (["--tag", "customer=acme"], ["pending", "completed"]),
        (["--tag", "customer=acme", "--status", "pending"], ["pending"]),
        (["--text", "order:"], ["suspended"]),
        (["--since", "1h", "--workflow", "approve"], ["pending", "suspended"]),
        (["--since", "2999-01-01"], []),
        (["--since", "1999-01-01T00:00:00+02:00", "--limit", "1"], ["pending"]),
    ],
)
def test_list_narrows(filled: Filled, options: list[str], names: list[str]) -> None:
    listed = filled.cli.documents("list", *options)
    assert [row["eid"] for row in listed] == [filled.eids[name] for name in names]


def test_list_goes_on_where_it_ended(filled: Filled) -> None:
    seen: list[str] = []
    more: list[str] = []
    while True:
        result = filled.cli("list", "--limit", "2", *more)
        assert result.exit_code == 0
        seen += [row[0] for row in cells(result.stdout)]
        if not result.stderr:
            break
        more = result.stderr.strip().removeprefix("there are more: ").split(" ")
    assert seen == list(reversed(filled.eids.values()))


@pytest.mark.parametrize(
    "options",
    [
        ["--status", "lost"],
        ["--limit", "0"],
        ["--limit", "501"],
        ["--since", "yesterday"],
        ["--since", "99999999999w"],
        ["--tag", "customer"],
        ["--cursor", "nonsense"],
    ],
)
def test_list_refuses_what_cannot_be_meant(filled: Filled, options: list[str]) -> None:
    filled.cli.complaint(2, "list", *options)


def test_an_empty_list_prints_nothing_in_a_pipe(cli: Cli) -> None:
    cli.done("worker", "--once")
    result = cli("list")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert cli.documents("list") == []


def test_watch_shows_what_status_shows_and_ends(filled: Filled) -> None:
    cli, eid = filled.cli, filled.eids["retried"]
    assert cli.done("watch", eid) == cli.done("status", eid, "--journal")
    assert cli.documents("watch", eid) == cli.documents("status", eid, "--journal")


def test_watch_of_a_failed_execution_is_done(filled: Filled) -> None:
    rows = cells(filled.cli.done("watch", filled.eids["failed"]))
    assert rows[-1][3] == "execution.failed"


def test_store_info(filled: Filled) -> None:
    cli = filled.cli
    told = facts(cli.done("store", "info"))
    assert told["store"] == cli.url
    assert (told["pending"], told["suspended"], told["running"]) == ("1", "2", "0")
    assert (told["completed"], told["failed"]) == ("2", "1")
    assert int(told["size"]) > 0
    (document,) = cli.documents("store", "info")
    assert document["executions"]["suspended"] == 2


def test_a_stream_is_printed_item_by_item(cli: Cli) -> None:
    eid = cli.done("start", "publish", 3)
    cli.run_worker()
    assert cli.done("stream", eid, "progress").splitlines() == [
        '{"page":0,"text":"\\u001b[31m\\n"}',
        '{"page":1,"text":"\\u001b[31m\\n"}',
        '{"page":2,"text":"\\u001b[31m\\n"}',
        '"all"',
    ]
    assert cli.documents("stream", eid, "progress", "--after", 3) == ["all"]
    assert cli.done("stream", eid, "progress", "--after", 9) == ""
    assert cli.done("stream", eid, "silence") == ""


def test_a_stream_that_cannot_be_meant_is_a_usage_error(cli: Cli) -> None:
    eid = cli.done("start", "publish", 1)
    assert "stream 'A/B' is not a valid name" in cli.complaint(2, "stream", eid, "A/B")
    assert "--after" in cli.complaint(2, "stream", eid, "progress", "--after", -1)
