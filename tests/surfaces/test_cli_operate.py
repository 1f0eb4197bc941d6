"""Can executions be steered from the command line? One by its id, or many by a filter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.support import APP, Cli, Filled, on_terminal, plain, start_one_of_each

NOBODY = "6b1f2a5e-0c0f-4d43-9a53-8f4f5f5f0a11"
ON_ONE: list[list[str]] = [
    ["cancel", NOBODY],
    ["terminate", NOBODY],
    ["resume", NOBODY],
    ["retry", NOBODY],
    ["migrate", NOBODY, "1"],
    ["fork", NOBODY, "root"],
]


ON_MANY = [["cancel"], ["terminate"], ["resume"], ["retry"], ["migrate", "1"]]


@pytest.fixture
def one_of_each(cli: Cli) -> Filled:
    """Give a store with one execution in each status, to be changed."""
    return start_one_of_each(cli)


def status_of(cli: Cli, eid: str) -> dict[str, Any]:
    """Give the document of an execution."""
    (document,) = cli.documents("status", eid)
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("command", ON_ONE, ids=lambda command: str(command[0]))
def test_nobody_is_refused_and_a_bad_id_is_usage(filled: Filled, command: list[str]) -> None:
    cli = filled.cli
    assert f"no execution has the id {NOBODY}" in cli.complaint(1, *command)
    wrong = ["nonsense" if word == NOBODY else word for word in command]
    assert "not an execution id" in cli.complaint(2, *wrong)


@pytest.mark.parametrize(
    "command",
    [*ON_ONE, *([*command, "--workflow", "x"] for command in ON_MANY), ["broadcast", "news"]],
    ids="-".join,
)
def test_to_steer_does_not_create_a_store(cli: Cli, command: list[str]) -> None:
    assert "no store at" in cli.complaint(1, *command)
    assert not list(Path(cli.url.removeprefix("sqlite:///")).parent.iterdir())


@pytest.mark.parametrize("command", ["cancel", "terminate", "resume", "migrate"])
def test_what_has_ended_is_refused(filled: Filled, command: str) -> None:
    version = ["1"] if command == "migrate" else []
    sentence = filled.cli.complaint(1, command, filled.eids["completed"], *version)
    assert "is completed already" in sentence


@pytest.mark.parametrize("command", ON_MANY, ids=lambda command: str(command[0]))
def test_neither_an_id_nor_a_filter_is_usage_and_neither_are_both(
    filled: Filled, command: list[str]
) -> None:
    cli, (name, *rest) = filled.cli, command
    assert "give one id, or a filter" in cli.complaint(2, *command)
    both = (filled.eids["suspended"], *rest, "--workflow", "approve")
    assert "give one id, or a filter" in cli.complaint(2, name, *both)


@pytest.mark.parametrize("command", ON_MANY, ids=lambda command: str(command[0]))
@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--text", ""], "fits every execution"),
        (["--text", "", "--workflow", "approve"], "fits every execution"),
        (["--tag", "customer"], "--tag"),
        (["--parent", "me"], "--parent"),
        (["--since", "yesterday"], "--since"),
        (["--until", "tomorrow"], "--until"),
    ],
)
def test_a_filter_that_cannot_be_meant_is_usage(
    filled: Filled, command: list[str], options: list[str], named: str
) -> None:
    assert named in filled.cli.complaint(2, *command, *options)


@pytest.mark.parametrize("command", ON_MANY, ids=lambda command: str(command[0]))
def test_a_filter_that_names_nobody_is_done_with_none(filled: Filled, command: list[str]) -> None:
    nobody = [
        *(("--workflow", "x"), ("--tag", "customer=x"), ("--text", "nowhere")),
        *(("--parent", NOBODY), ("--since", "2999-01-01"), ("--until", "1999-01-01")),
    ]
    for options in nobody:
        assert filled.cli.done(*command, *options) == "0"


def test_a_pending_execution_is_cancelled_at_once(one_of_each: Filled) -> None:
    cli, eid = one_of_each.cli, one_of_each.eids["pending"]
    told = cli.done("cancel", eid, "--reason", "not wanted", "--by", "ada@example.com")
    assert told == f"asked {eid} to cancel"
    document = status_of(cli, eid)
    assert document["status"] == "cancelled"
    assert document["error"] == {
        "type": "ExecutionCancelled",
        "message": "by human:ada@example.com: not wanted",
    }
    assert "cancelled by human:ada@example.com: not wanted" in cli.complaint(1, "result", eid)
    (line,) = cli.done("status", eid, "--journal").splitlines()
    assert line.endswith("by human:ada@example.com  not wanted")


def test_a_suspended_execution_is_cancelled_by_a_worker(one_of_each: Filled) -> None:
    cli, eid = one_of_each.cli, one_of_each.eids["suspended"]
    cli.done("cancel", eid)
    assert status_of(cli, eid)["status"] == "suspended"
    cli.run_worker()
    assert status_of(cli, eid)["status"] == "cancelled"
    (row,) = cli.done("list", "--status", "cancelled").splitlines()
    assert row.startswith(eid)
    assert row.endswith("by system:perdure-cli")


def test_a_filter_cancels_many_and_counts_them(one_of_each: Filled) -> None:
    cli = one_of_each.cli
    assert cli.done("cancel", "--workflow", "approve") == "2"
    assert cli.documents("cancel", "--workflow", "nothing") == [{"count": 0}]
    assert "a status is one of" in cli.complaint(2, "cancel", "--status", "finished")
    cli.run_worker()
    assert len(cli.documents("list", "--status", "cancelled")) == 2


def test_terminate_closes_at_once(one_of_each: Filled) -> None:
    cli, eid = one_of_each.cli, one_of_each.eids["suspended"]
    assert cli.done("terminate", eid, "--reason", "gone mad") == f"terminated {eid}"
    assert status_of(cli, eid)["status"] == "terminated"
    assert "terminated by system:perdure-cli: gone mad" in cli.complaint(1, "result", eid)
    assert cli.done("terminate", "--tag", "customer=acme") == "1"


def test_resume_lets_a_worker_look_at_a_blocked_execution_again(one_of_each: Filled) -> None:
    cli, eid = one_of_each.cli, one_of_each.eids["blocked"]
    epoch = status_of(cli, eid)["epoch"]
    assert cli.done("resume", eid) == f"resumed {eid}"
    cli.run_worker()
    document = status_of(cli, eid)
    assert (document["status"], document["epoch"]) == ("suspended", epoch + 1)
    assert cli.done("resume", "--workflow", "block") == "1"
    assert cli.done("resume", "--workflow", "approve") == "0", "they are not blocked"


def test_a_failed_execution_is_retried_as_a_copy(one_of_each: Filled) -> None:
    cli, eid = one_of_each.cli, one_of_each.eids["failed"]
    copy = cli.done("retry", eid)
    assert status_of(cli, copy)["status"] == "pending"
    (line, *_) = cli.done("status", copy, "--journal").splitlines()
    assert f"of {eid}" in line
    (document,) = cli.documents("retry", eid, "--by", "ada@example.com")
    created_by = status_of(cli, document["eid"])["created_by"]
    assert (created_by["kind"], created_by["id"]) == ("human", "ada@example.com")
    assert cli.done("retry", "--workflow", "fail") == "1"
    sentence = cli.complaint(1, "retry", one_of_each.eids["completed"])
    assert "only a failed one can be retried" in sentence


def test_migrate_prints_the_versions(one_of_each: Filled) -> None:
    cli, eid = one_of_each.cli, one_of_each.eids["suspended"]
    assert cli.done("migrate", eid, "1") == "2 → 1"
    assert status_of(cli, eid)["version"] == "1"
    assert "has version '1' already" in cli.complaint(1, "migrate", eid, "1")
    assert "not registered here" in cli.complaint(1, "migrate", eid, "9")
    assert "--app" in cli.complaint(2, "migrate", eid, "2", PERDURE_APP="")
    assert "too much" in cli.complaint(2, "migrate", eid, eid, "2")
    assert cli.done("migrate", "1", "--workflow", "approve") == "1", "the other has it already"
    cli.run_worker()
    assert cli.done("result", eid) == '"approved"'
    journal = cli.done("status", eid, "--journal")
    assert "2 → 1" in journal


def test_what_was_done_to_one_is_told_in_json(one_of_each: Filled) -> None:
    cli, eid = one_of_each.cli, one_of_each.eids["suspended"]
    versions = {"from_version": "2", "version": "1"}
    assert cli.documents("migrate", eid, "1") == [{"eid": eid, **versions}]
    for command in ("resume", "cancel", "terminate"):
        assert cli.documents(command, eid) == [{"eid": eid}]


def test_a_blocked_execution_is_shown_with_what_to_do(filled: Filled, tmp_path: Path) -> None:
    eid, url = filled.eids["blocked"], filled.cli.url
    _, shown = on_terminal("status", eid, "--store", url, cwd=tmp_path, columns=200)
    assert f"perdure resume {eid}" in plain(shown).splitlines()[-1]
    other = filled.eids["suspended"]
    _, shown = on_terminal("status", other, "--store", url, cwd=tmp_path, columns=200)
    assert "perdure resume" not in shown


def test_a_terminal_is_told_in_sentences(one_of_each: Filled, tmp_path: Path) -> None:
    cli, eid = one_of_each.cli, one_of_each.eids["suspended"]

    def told(*args: str) -> str:
        options = ("--store", cli.url, *(("--app", APP) if args[0] == "migrate" else ()))
        code, shown = on_terminal(*args, *options, cwd=tmp_path, columns=80)
        assert code == 0
        return plain(shown)

    assert told("migrate", eid, "1") == "2 → 1\n"
    assert told("cancel", eid) == f"asked {eid} to cancel\n"
    assert told("terminate", "--tag", "customer=acme") == "1 execution\n"
    assert told("terminate", "--tag", "customer=acme") == "0 executions\n"
    assert told("broadcast", "news", "1") == "sent message 1 on global channel news\n"


def test_fork_prints_the_id_of_the_copy(one_of_each: Filled) -> None:
    cli, eid = one_of_each.cli, one_of_each.eids["completed"]
    copy = cli.done("fork", eid, "root/compose#0", "--override", 'root/compose#0="Hi"')
    cli.run_worker()
    assert cli.done("result", copy) == '"Hi"'
    (document,) = cli.documents("fork", eid, "root")
    cli.run_worker()
    assert cli.done("result", document["eid"]) == '"Hello, Ada!"'


def test_a_fork_that_cannot_be_meant_is_refused(filled: Filled) -> None:
    cli, eid = filled.cli, filled.eids["completed"]
    assert "no frame 'root/x#0'" in cli.complaint(1, "fork", eid, "root/x#0")
    for override in ("root/compose#0", "root/compose#0=Hi", "=1", ""):
        sentence = cli.complaint(2, "fork", eid, "root", "--override", override)
        assert "write FID=JSON" in sentence
    twice = ["--override", "root/compose#0=1"] * 2
    assert "given twice" in cli.complaint(2, "fork", eid, "root", *twice)


def test_only_a_step_can_be_given_a_value(filled: Filled) -> None:
    cli, eid = filled.cli, filled.eids["suspended"]
    sentence = cli.complaint(2, "fork", eid, "root", "--override", "root/receive#0=1")
    assert "is no step" in sentence


def test_an_override_may_have_equals_signs_in_its_key(filled: Filled) -> None:
    cli, eid = filled.cli, filled.eids["completed"]
    sentence = cli.complaint(1, "fork", eid, "root", "--override", 'root/f:a=b="c=d"')
    assert "no frame 'root/f:a=b'" in sentence


def test_broadcast_prints_the_sequence(cli: Cli) -> None:
    cli.done("start", "greet", "Ada")
    assert cli.done("broadcast", "news", '{"a": 1}') == "1"
    assert cli.documents("broadcast", "news", "-", "--by", "ada@example.com") == [{"seq": 2}]
    assert "channel" in cli.complaint(2, "broadcast", "No News")


def test_the_children_of_an_execution_are_listed(cli: Cli) -> None:
    eid = cli.done("start", "family")
    cli.run_worker()
    (line,) = cli.done("list", "--parent", eid).splitlines()
    child = line.split("\t")[0]
    assert line.endswith('"Hello, Ada!"')
    assert f"parent\t{eid} root/greet#0" in cli.done("status", child)
    assert cli.done("result", eid) == '["Hello, Ada!",1]'
    journal = cli.done("status", eid, "--journal")
    assert f'child:{child}  completed "Hello, Ada!"' in journal
    frames = cli.done("status", eid, "--frames")
    assert "root/greet#0\tchild\tcompleted" in frames
    assert cli.done("list", "--parent", child) == ""
    assert "not an execution id" in cli.complaint(2, "list", "--parent", "me")


def test_a_continued_execution_names_its_successor(cli: Cli) -> None:
    eid = cli.done("start", "count", 2)
    cli.run_worker()
    rows = cli.documents("list", "--workflow", "count")
    assert len(rows) == 3
    assert rows[-1]["continued_as"] == rows[-2]["eid"]
    assert cli.done("result", eid) == "0"
    assert f"continued as {rows[-2]['eid']}" in cli.done("list", "--until", "0s")
    result = cli("status", eid)
    assert f"eid\t{rows[0]['eid']}" in result.stdout
    assert result.stderr == f"{eid} continued as {rows[0]['eid']}, which is shown\n"
    first = cli.done("status", eid, "--journal").splitlines()[-1]
    assert first.endswith(f"continued as {rows[-2]['eid']}")
