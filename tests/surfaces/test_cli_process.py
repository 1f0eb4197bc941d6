"""Does it behave as a process: behind a pipe, on a terminal, and without its extra?"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from tests.surfaces.support import (
    APP,
    COMMAND,
    ROOT,
    Cli,
    Filled,
    environment,
    in_pipe,
    on_terminal,
    plain,
)

COMMANDS = [
    *("broadcast", "cancel", "consume", "fork", "init", "list", "migrate", "result", "resume"),
    *(
        "queues",
        "retry",
        "reviews",
        "signal",
        "start",
        "status",
        "store",
        "stream",
        "terminate",
        "watch",
        "worker",
    ),
]


def test_help_names_every_command(cli: Cli) -> None:
    for args in ([], ["--help"], ["-h"]):
        text = cli.done(*args)
        assert all(f"\n  {command} " in text for command in COMMANDS)
        assert "\x1b" not in text


@pytest.mark.parametrize(
    "command", [*COMMANDS, "store info", "queues show", "reviews list", "reviews decide"]
)
def test_every_command_has_help(cli: Cli, command: str) -> None:
    assert f"perdure {command}" in cli.done(*command.split(), "--help").replace("root", "perdure")


def test_version(cli: Cli) -> None:
    assert cli.done("--version") == f"perdure {perdure.__version__}"


@pytest.mark.parametrize("args", [["nosuch"], ["store"], ["store", "nosuch"], ["--nosuch"]])
def test_what_does_not_exist_is_a_usage_error(cli: Cli, args: list[str]) -> None:
    assert "see perdure" in cli.complaint(2, *args).replace("root", "perdure")


def test_a_slip_of_the_pen_is_pointed_out(cli: Cli) -> None:
    assert cli.complaint(2, "lst").endswith("Did you mean 'list'?")
    assert "--key" in cli.complaint(2, "start", "--kez")


def test_no_option_is_taken_for_a_command(cli: Cli) -> None:
    assert "perdure status --help" in cli.complaint(2, "status").replace("root", "perdure")


@pytest.fixture
def url(filled: Filled) -> str:
    """Give the URL of a store with executions."""
    return filled.cli.url


@pytest.fixture
def eid(filled: Filled) -> str:
    """Give the id of an execution that waits."""
    return filled.eids["suspended"]


def test_a_pipe_gets_tabs_and_no_styles(url: str, eid: str, tmp_path: Path) -> None:
    done = in_pipe("list", "--store", url, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{eid}\tsuspended\tapprove\t2\t" in done.stdout
    assert "\x1b" not in done.stdout


def test_settings_come_from_the_environment(cli: Cli, tmp_path: Path) -> None:
    settings = {"PERDURE_STORE": cli.url, "PERDURE_APP": APP, "PERDURE_BY": "ada@example.com"}
    eid = in_pipe("start", "approve", cwd=tmp_path, env=settings).stdout.strip()
    assert cli.documents("status", eid)[0]["created_by"]["id"] == "ada@example.com"
    assert not (tmp_path / "perdure.db").exists()


@pytest.mark.parametrize("columns", [80, 200])
def test_a_terminal_never_wraps_a_line_of_a_table(cli: Cli, tmp_path: Path, columns: int) -> None:
    eid = cli.done("start", "approve")
    cli.done("start", "greet", "Ada", "--key", "k" * 300)
    code, shown = on_terminal("list", "--store", cli.url, cwd=tmp_path, columns=columns)
    lines = plain(shown).splitlines()
    assert code == 0
    assert "\x1b[" in shown
    assert len(lines) == 3
    assert all(len(line) <= columns for line in lines)
    assert lines[0].split()[:4] == ["eid", "status", "workflow", "created"]
    assert ("key" in lines[0]) == (columns == 200)
    (mine,) = [line for line in lines if eid in line]
    assert "  pending  " in mine
    assert "  approve 2  " in mine


@pytest.mark.parametrize("view", ["", "--journal", "--frames"])
@pytest.mark.parametrize("columns", [80, 200])
def test_a_terminal_shows_one_execution(
    url: str, eid: str, tmp_path: Path, columns: int, view: str
) -> None:
    args = ["status", eid, "--store", url, *([view] if view else [])]
    code, shown = on_terminal(*args, cwd=tmp_path, columns=columns)
    text = plain(shown)
    assert code == 0
    assert all(len(line) <= columns for line in text.splitlines())
    expected = {
        "": [f"eid         {eid}", "approve 2  suspended", "order:7", "size=9"],
        "--journal": ["epoch 1", "   1  ", "execution.started", "root/receive#0"],
        "--frames": ["frame ", "└─ receive#0", "waiting"],
    }
    assert all(part in text for part in expected[view]), text


@pytest.mark.parametrize("command", ["list", "status --journal", "result"])
def test_nothing_that_was_stored_steers_the_terminal(
    filled: Filled, tmp_path: Path, command: str
) -> None:
    args = [] if command == "list" else [filled.eids["failed"]]
    _, shown = on_terminal(
        *command.split(), *args, "--store", filled.cli.url, cwd=tmp_path, columns=200
    )
    assert r"\u001b[31mno" in shown
    assert "\x1b[31mno" not in shown


@pytest.mark.parametrize("command", ["list", "status EID --journal"])
def test_no_color_is_honoured(url: str, eid: str, tmp_path: Path, command: str) -> None:
    args = command.replace("EID", eid).split()
    settings = {"NO_COLOR": "1"}
    _, shown = on_terminal(*args, "--store", url, cwd=tmp_path, columns=80, env=settings)
    assert shown
    assert "\x1b" not in shown


def test_json_on_a_terminal_is_json(url: str, eid: str, tmp_path: Path) -> None:
    args = ["status", eid, "--json", "--store", url]
    _, shown = on_terminal(*args, cwd=tmp_path, columns=80)
    assert json.loads(shown)["eid"] == eid


def test_an_empty_store_says_how_to_begin(cli: Cli, tmp_path: Path) -> None:
    cli.done("worker", "--once")
    code, shown = on_terminal("list", "--store", cli.url, cwd=tmp_path, columns=80)
    assert code == 0
    assert "perdure start" in shown
    _, shown = on_terminal(
        "list", "--status", "failed", "--store", cli.url, cwd=tmp_path, columns=80
    )
    assert "No execution fits" in shown


def test_a_terminal_is_told_how_to_go_on(cli: Cli, tmp_path: Path) -> None:
    code, shown = on_terminal(
        *("start", "approve", "--key", "order:7", "--app", APP, "--store", cli.url),
        cwd=tmp_path,
        columns=80,
    )
    (row,) = cli.documents("list")
    assert code == 0
    assert plain(shown) == f"started {row['eid']}\nfollow it with: perdure watch {row['eid']}\n"
    code, shown = on_terminal(
        *("signal", row["eid"], "approval", '{"ok": true}', "--store", cli.url),
        cwd=tmp_path,
        columns=80,
    )
    assert plain(shown) == "sent message 1 on channel approval\n"
    cli.run_worker()
    code, shown = on_terminal("result", row["eid"], "--store", cli.url, cwd=tmp_path, columns=80)
    assert plain(shown) == '{\n  "ok": true\n}\n'


def test_watch_follows_until_the_end(cli: Cli, tmp_path: Path) -> None:
    eid = cli.done("start", "approve")
    with subprocess.Popen(
        [*COMMAND, "watch", eid, "--store", cli.url],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as watching:
        assert watching.stdout is not None
        cli.run_worker()
        seen = ""
        while "execution.suspended" not in seen:
            seen = watching.stdout.readline()
        cli.done("signal", eid, "approval", "yes")
        cli.run_worker()
        last = watching.stdout.read().splitlines()[-1]
        assert last.split("\t")[3:] == ["execution.completed", "root", "", '"yes"']
        assert watching.wait() == 0


def test_stream_follows_until_the_end(cli: Cli, tmp_path: Path) -> None:
    eid = cli.done("start", "publish", 2)
    with subprocess.Popen(
        [*COMMAND, "stream", eid, "progress", "--json", "--after", "1", "--store", cli.url],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as following:
        assert following.stdout is not None
        cli.run_worker()
        items = [json.loads(line) for line in following.stdout]
        assert items == [{"page": 1, "text": "\x1b[31m\n"}, "all"]
        assert following.wait() == 0


def test_a_stream_on_a_terminal_has_one_line_per_item(cli: Cli, tmp_path: Path) -> None:
    eid = cli.done("start", "publish", 1)
    cli.run_worker()
    code, shown = on_terminal(
        "stream", eid, "progress", "--store", cli.url, cwd=tmp_path, columns=20
    )
    assert code == 0
    assert plain(shown) == '{"page":0,"text":"\\u001b[31m\\n"}\n"all"\n'


def test_watch_stops_at_an_interrupt_without_a_word(url: str, eid: str, tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "watch", eid, "--store", url],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        watching.stdout.read()
        assert watching.stderr.read() == ""
        assert watching.wait() == 130


def test_a_reader_that_goes_away_is_no_error(url: str, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    for args in (["list"], ["list", "--json"], ["--help"]):
        settings = environment(PERDURE_STORE=url)
        done = subprocess.run(
            [*COMMAND, *args],
            cwd=tmp_path,
            env=settings,
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
        )
        assert done.stderr == b"", args
    os.close(writing)


@pytest.mark.parametrize(("closed", "command"), [(1, "list"), (2, "list"), (0, "signal EID x -")])
def test_a_closed_stream_is_no_error(cli: Cli, tmp_path: Path, closed: int, command: str) -> None:
    eid = cli.done("start", "approve")
    call = shlex.join([*COMMAND, *command.replace("EID", eid).split(), "--store", cli.url])
    done = subprocess.run(
        ["sh", "-c", f"exec {call} {closed}>&-"],  # noqa: S607 - whichever sh there is
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_the_terminal_cannot_show_is_no_error(url: str, tmp_path: Path) -> None:
    wrong = in_pipe(
        "status", "Zoë", "--store", url, cwd=tmp_path, env={"PYTHONIOENCODING": "ascii"}
    )
    assert wrong.returncode == 2
    assert r"Zo\xeb" in wrong.stderr


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_extra_it_says_what_to_install(tmp_path: Path, missing: str) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None; "
        "from perdure.surfaces.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**environment(), "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "install perdure[cli]" in done.stderr
