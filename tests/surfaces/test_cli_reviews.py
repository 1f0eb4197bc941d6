"""Is the inbox shown, and is each review decided once?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.surfaces.support import Cli, on_terminal, plain

ADA, BOB = ("--by", "ada@example.com"), ("--by", "bob@example.com")


@pytest.fixture
def asked(cli: Cli) -> tuple[str, str]:
    """Ask for a review; give the execution and the review."""
    eid = cli.done("start", "sign", '{"invoice": "INV-7"}', "86400")
    cli.run_worker()
    (review,) = cli.documents("reviews", "list")
    return eid, review["rid"]


def test_the_inbox_lists_what_waits_and_all_what_was_asked(
    cli: Cli, asked: tuple[str, str]
) -> None:
    eid, rid = asked
    cli.done("start", "sign", "null", "null", "legal")
    cli.done("start", "sign", "null", "0")
    cli.run_worker()
    cli.run_worker()
    row = cli.done("reviews", "list", "--queue", "finance").split("\t")
    assert (row[:3], row[5:]) == ([rid, "pending", "finance"], ['{"invoice":"INV-7"}', ""])
    assert row[3] < row[4]
    (document,) = cli.documents("reviews", "list", "--queue", "finance")
    assert (document["rid"], document["eid"]) == (rid, eid)
    assert (document["fid"], document["verdict"]) == ("root/review-requested#0", None)
    assert [one["queue"] for one in cli.documents("reviews", "list")] == ["finance", "legal"]
    cli.done("reviews", "decide", rid, "approve", "--data", '{"limit": 5}', *ADA)
    assert cli.done("reviews", "list", "--queue", "finance") == ""
    lines = cli.done("reviews", "list", "--all").splitlines()
    assert [line.split("\t")[1] for line in lines] == ["decided", "pending", "expired"]
    assert lines[0].endswith('\tapprove {"limit":5} by human:ada@example.com')
    legal = cli.documents("reviews", "list", "--all", "--queue", "legal")
    assert [one["status"] for one in legal] == ["pending"]


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("every", [False, True])
def test_a_terminal_shows_whole_ids_and_crops_payloads(
    cli: Cli, asked: tuple[str, str], tmp_path: Path, columns: int, every: bool
) -> None:
    cli.done("start", "sign", json.dumps("\x1b[31m" + "x" * 300))
    cli.run_worker()
    args = ["reviews", "list", *(["--all"] if every else []), "--store", cli.url]
    code, shown = on_terminal(*args, cwd=tmp_path, columns=columns)
    lines = plain(shown).splitlines()
    assert code == 0
    assert [len(line) <= columns for line in lines] == [True] * 3
    assert lines[0].split()[:4] == ["review", "queue", "since", "status" if every else "deadline"]
    assert lines[1].startswith(asked[1])
    expected = ["pending"] if every else ["in 1 d", "in 23 h"]  # whichever is nearer by now
    assert any(one in lines[1] for one in expected)
    assert "\x1b[31mx" not in shown


def test_an_empty_inbox_says_so(cli: Cli, tmp_path: Path) -> None:
    cli.done("start", "greet", "Ada")
    for args, text in ([], "Nothing waits"), (["--all"], "No review was asked for"):
        code, shown = on_terminal(
            "reviews", "list", *args, "--store", cli.url, cwd=tmp_path, columns=80
        )
        assert code == 0
        assert text in shown


def test_the_first_decision_counts(cli: Cli, asked: tuple[str, str], tmp_path: Path) -> None:
    eid, rid = asked
    (first,) = cli.documents("reviews", "decide", rid, "approve", "--data", "[1]", *ADA)
    assert (first["verdict"], first["data"], first["first"]) == ("approve", [1], True)
    assert first["by"] == {"kind": "human", "id": "ada@example.com", "on_behalf_of": None}
    (second,) = cli.documents("reviews", "decide", rid, "reject", *BOB)
    assert second == {**first, "first": False}
    (again,) = cli.documents("reviews", "decide", rid, "approve", "--data", "[1]", *ADA)
    assert again == second
    told = cli("reviews", "decide", rid, "reject", *BOB)
    assert told.exit_code == 0
    assert "decided before, by human:ada@example.com" in told.stderr
    assert "verdict\tapprove\n" in told.stdout
    _, shown = on_terminal(
        "reviews", "decide", rid, "reject", "--store", cli.url, cwd=tmp_path, columns=80
    )
    assert "decided before" in shown
    cli.run_worker()
    assert cli.documents("result", eid) == [["approve", [1], "human:ada@example.com"]]


def test_what_cannot_be_decided_is_refused(cli: Cli, asked: tuple[str, str]) -> None:
    eid, rid = asked
    assert "no review" in cli.complaint(1, "reviews", "decide", "nosuch", "approve")
    assert "is not JSON" in cli.complaint(2, "reviews", "decide", rid, "yes", "--data", "{yes")
    assert "names nobody" in cli.complaint(2, "reviews", "decide", rid, "yes", "--by", "ada")
    assert "verdict" in cli.complaint(2, "reviews", "decide", rid, "")
    cli.done("terminate", eid)
    assert "terminated" in cli.complaint(1, "reviews", "decide", rid, "approve")
    cli.done("start", "sign", "null", "0")
    cli.run_worker()
    cli.run_worker()
    expired = cli.documents("reviews", "list", "--all")[-1]["rid"]
    assert "has expired" in cli.complaint(1, "reviews", "decide", expired, "approve")


def test_to_look_creates_no_store(cli: Cli) -> None:
    assert "there is no store" in cli.complaint(1, "reviews", "list")
    assert "there is no store" in cli.complaint(1, "reviews", "decide", "x", "approve")
