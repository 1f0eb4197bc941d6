"""Can one start executions, send them messages and wait for their results?"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from perdure.surfaces.cli.typed import read_value
from tests.surfaces.support import Cli

NOBODY = str(uuid.uuid4())


@pytest.fixture
def held(cli: Cli) -> str:
    """Give the id of an execution that waits on the channel ``approval``."""
    eid = cli.done("start", "approve")
    cli.run_worker()
    return eid


def test_start_prints_the_id_alone_in_a_pipe(cli: Cli) -> None:
    result = cli("start", "greet", "Ada")
    assert result.exit_code == 0
    assert str(uuid.UUID(result.stdout.strip())) == result.stdout.strip()
    assert result.stderr == ""


def test_start_creates_the_store_and_the_execution_is_durable(cli: Cli) -> None:
    eid = cli.done("start", "greet", "Ada")
    (row,) = cli.documents("status", eid)
    assert (row["status"], row["workflow"], row["version"]) == ("pending", "greet", "1")
    assert row["created_by"]["id"] == "perdure-cli"


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("Ada", "Ada"),
        ("007", "007"),
        ('"12"', "12"),
        ("NaN", "NaN"),
        ("ünï", "ünï"),
        ("", ""),
        ("null", None),
        ("\udcff", "\udcff"),
        ("[" * 100_000, "[" * 100_000),
        ('{"a": [1, 2.5, null, true]}', {"a": [1, 2.5, None, True]}),
    ],
)
def test_a_value_is_json_if_it_is_json_else_text(typed: str, value: object) -> None:
    assert read_value(typed) == value


def test_arguments_are_values_and_arrive_as_such(cli: Cli) -> None:
    eid = cli.done("start", "approve", "7", "INV-7", "--kw", "lines=[1, 2]", "--kw", "note=a=b")
    assert cli.documents("status", eid)[0]["args"] == [
        [7, "INV-7"],
        {"lines": [1, 2], "note": "a=b"},
    ]


def test_an_argument_that_begins_with_a_dash_follows_two_dashes(cli: Cli) -> None:
    eid = cli.done("start", "approve", "--key", "order:7", "--", "-5")
    assert cli.documents("status", eid)[0]["args"] == [[-5], {}]


def test_start_takes_everything_an_execution_can_be_started_with(cli: Cli) -> None:
    eid = cli.done(
        *("start", "approve", "--version", "1", "--queue", "slow", "--key", "order:7"),
        *("--priority", 3, "--tag", "customer=acme", "--tag", "note=a=b"),
        *("--by", "ada@example.com"),
    )
    (row,) = cli.documents("status", eid)
    assert (row["version"], row["queue"], row["dispatch_key"]) == ("1", "slow", "order:7")
    assert row["tags"] == {"customer": "acme", "note": "a=b"}
    assert (row["created_by"]["kind"], row["created_by"]["id"]) == ("human", "ada@example.com")


def test_a_second_start_with_one_key_says_so_and_gives_the_first_id(cli: Cli) -> None:
    first = cli.done("start", "approve", "--key", "order:7")
    second = cli("start", "approve", "--key", "order:7")
    assert second.stdout.strip() == first
    assert "'order:7' was used before" in second.stderr
    document = cli.documents("start", "approve", "--key", "order:7")
    assert document == [{"eid": first, "deduplicated": True}]
    assert len(cli.documents("list")) == 1


def test_a_key_of_another_workflow_is_refused(cli: Cli) -> None:
    cli.done("start", "approve", "--key", "order:7")
    assert "another workflow" in cli.complaint(1, "start", "greet", "Ada", "--key", "order:7")


@pytest.mark.parametrize(
    ("by", "kind", "name"),
    [
        ("ada@example.com", "human", "ada@example.com"),
        ("human:ada@example.com", "human", "ada@example.com"),
        ("system:billing", "system", "billing"),
        ("schedule:nightly", "schedule", "nightly"),
        ("system:a@b", "system", "a@b"),
    ],
)
def test_by_names_who_acts(cli: Cli, by: str, kind: str, name: str) -> None:
    eid = cli.done("start", "approve", PERDURE_BY=by)
    created_by = cli.documents("status", eid)[0]["created_by"]
    assert (created_by["kind"], created_by["id"]) == (kind, name)


@pytest.mark.parametrize("by", ["ada", "human:ada", "robot:7", "system:", ":", "a b@c", "@"])
def test_a_malformed_by_is_a_usage_error(cli: Cli, by: str) -> None:
    assert "--by" in cli.complaint(2, "start", "approve", "--by", by)
    assert "--by" in cli.complaint(2, "signal", NOBODY, "approval", "--by", by)
    assert not store_of(cli).exists()


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["greet"], "name"),
        (["greet", "Ada", "and", "more"], "arguments"),
        (["greet", "12"], "'name'"),
        (["greet", "Ada", "--kw", "loud=maybe"], "'loud'"),
        (["greet", "Ada", "--kw", "quiet=true"], "quiet"),
        (["approve", "--queue", "no queue"], "queue"),
        (["approve", "--key", ""], "key"),
        (["approve", "--priority", "-1"], "--priority"),
        (["approve", "--priority", "high"], "--priority"),
        (["approve", "--tag", "customer"], "--tag"),
        (["approve", "--tag", "=acme"], "--tag"),
        (["approve", "--tag", "a=1", "--tag", "a=2"], "twice"),
        (["greet", "--kw", "loud"], "--kw"),
        (["approve", "--kw", "key=x"], "positional"),
        (["approve", "--timeout", "3"], "--wait"),
        (["approve", "--wait", "--timeout", "-3"], "--timeout"),
        (["approve", "--colour"], "--colour"),
        ([], "WORKFLOW"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error_and_starts_nothing(
    cli: Cli, args: list[str], named: str
) -> None:
    assert named in cli.complaint(2, "start", *args)
    assert cli("list").stdout == ""


def test_an_unknown_workflow_or_version_is_refused_by_name(cli: Cli) -> None:
    assert "'nosuch'" in cli.complaint(1, "start", "nosuch")
    sentence = cli.complaint(1, "start", "approve", "--version", "9")
    assert "'approve'" in sentence
    assert "1, 2" in sentence


@pytest.mark.parametrize("args", [["nosuch"], ["approve", "--version", "9"], ["greet"]])
def test_a_refused_start_leaves_no_store_behind(cli: Cli, args: list[str]) -> None:
    assert cli("start", *args).exit_code != 0
    assert not store_of(cli).exists()


def test_start_can_wait_for_the_result(cli: Cli) -> None:
    eid = cli.done("start", "greet", "Ada", "--key", "greet:ada")
    cli.run_worker()
    waited = cli("start", "greet", "Ada", "--key", "greet:ada", "--wait", "--timeout", "10")
    assert waited.exit_code == 0
    assert waited.stdout == '"Hello, Ada!"\n'
    assert f"found {eid}" in waited.stderr
    (document,) = cli.documents("start", "greet", "Ada", "--key", "greet:ada", "--wait")
    assert document == {"eid": eid, "deduplicated": True, "result": "Hello, Ada!"}


def test_start_with_wait_gives_up_in_time(cli: Cli) -> None:
    result = cli("start", "approve", "--wait", "--timeout", "0")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "did not end within 0 s" in result.stderr


def test_result_prints_json(cli: Cli) -> None:
    eid = cli.done("start", "greet", "Ada", "--kw", "loud=true")
    cli.run_worker()
    assert cli.done("result", eid) == '"HELLO, ADA!"'
    assert cli.done("result", eid, "--json") == '"HELLO, ADA!"'


def test_the_result_of_a_failed_execution_is_its_reason(cli: Cli) -> None:
    eid = cli.done("start", "fail")
    cli.run_worker()
    sentence = cli.complaint(1, "result", eid)
    assert "StepFailed" in sentence
    assert r"\u001b[31mno way at all" in sentence
    assert sentence in cli.complaint(1, "result", eid, "--json")


def test_result_gives_up_in_time(cli: Cli, held: str) -> None:
    assert "did not end within 0 s" in cli.complaint(1, "result", held, "--timeout", "0")
    assert "--timeout" in cli.complaint(2, "result", held, "--timeout", "soon")
    assert "timeout" in cli.complaint(2, "result", held, "--timeout", "nan")


def test_signal_prints_the_sequence(cli: Cli, held: str) -> None:
    assert cli.done("signal", held, "approval", "yes") == "1"
    assert cli.done("signal", held, "approval", "no") == "2"
    assert cli.documents("signal", held, "approval") == [{"seq": 3}]
    cli.run_worker()
    assert cli.documents("result", held) == ["yes"]


def test_signal_reads_the_payload_from_the_standard_input(cli: Cli) -> None:
    given = {"yes\n": "yes", '{"a": 1}\n': {"a": 1}, "a\nb\n\n": "a\nb", "": ""}
    eid = cli.done("start", "collect", len(given))
    for text in given:
        cli.done("signal", eid, "item", "-", input_=text)
    cli.run_worker()
    assert cli.documents("result", eid) == [list(given.values())]


def test_signal_refuses_what_is_no_text(cli: Cli, held: str) -> None:
    assert "payload" in cli.complaint(2, "signal", held, "approval", "-", input_=b"\xff\xfe")
    assert cli.done("signal", held, "approval", "yes") == "1"


def test_signal_without_a_payload_sends_null_and_tells_who_sent_it(cli: Cli, held: str) -> None:
    cli.done("signal", held, "approval", "--by", "ada@example.com", "--correlation", "call 7")
    cli.run_worker()
    entries = cli.documents("status", held, "--journal")
    (message,) = [one["payload"]["message"] for one in entries if one["type"] == "frame.fulfilled"]
    assert message["payload"] is None
    assert message["sent_by"]["id"] == "ada@example.com"
    assert message["correlation"] == "call 7"


def test_signal_to_nobody_and_to_the_ended_is_refused(cli: Cli) -> None:
    eid = cli.done("start", "greet", "Ada")
    cli.run_worker()
    assert "is completed already" in cli.complaint(1, "signal", eid, "approval", "yes")
    assert "no execution has the id" in cli.complaint(1, "signal", NOBODY, "approval", "yes")
    assert "channel" in cli.complaint(2, "signal", eid, "No Channel", "yes")


def test_result_of_nobody_is_refused(cli: Cli) -> None:
    cli.done("start", "greet", "Ada")
    assert "no execution has the id" in cli.complaint(1, "result", NOBODY)


def store_of(cli: Cli) -> Path:
    """Give the file of the store."""
    return Path(cli.url.removeprefix("sqlite:///"))
