"""Does a worker process say that it is up, drain at a signal, and stop at a second one?"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.surfaces.cli.logs import logs_on_stderr
from tests.surfaces.support import APP, COMMAND, Cli, environment

UP = "worker w1 is up: store {url}; queues default, slow; workflows "


@contextmanager
def worker(cli: Cli, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run a worker process that is up, with both streams in one; kill it if it is still there."""
    with subprocess.Popen(
        [
            *(*COMMAND, "worker", "--app", APP, "--store", cli.url, "--worker-id", "w1"),
            *("--queue", "default", "--queue", "slow", *options),
        ],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            wait_for(process, "is up")
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[str], text: str) -> str:
    """Wait for the line that has a text in it."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return line.removesuffix("\n")
    pytest.fail(f"the worker ended with {process.wait()}, and never said {text!r}")


def rest(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a process, and give what else it says."""
    assert process.stdout is not None
    return process.stdout.read()


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """Give a named pipe, which holds up whoever reads it."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_once_runs_until_idle(cli: Cli) -> None:
    eid = cli.done("start", "greet", "Ada")
    lines = cli.done("worker", "--once", "--worker-id", "w1").splitlines()
    assert lines[0].startswith(f"worker w1 is up: store {cli.url}; queues default; workflows ")
    assert lines[1:] == ["worker w1 stopped: nothing is left to do"]
    assert cli.documents("result", eid) == ["Hello, Ada!"]
    (row,) = cli.documents("status", eid)
    assert row["epoch"] == 1


def test_a_worker_names_what_it_knows_but_not_without_end(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "many_workflows.py").write_text(
        "import perdure\n"
        "registry = perdure.Registry()\n"
        "async def run(ctx): ...\n"
        "for n in range(10):\n"
        "    registry.workflow(f'w{n}', version='1')(run)\n"
        "none = perdure.Registry()\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    many = cli.done("worker", "--once", "--app", "many_workflows")
    assert "workflows w0 1, w1 1, w2 1, w3 1, w4 1, w5 1, w6 1, w7 1 and 2 more" in many
    assert "workflows none" in cli.done("worker", "--once", "--app", "many_workflows:none")


def test_a_worker_works_on_its_queues_only(cli: Cli) -> None:
    eid = cli.done("start", "greet", "Ada", "--queue", "finance")
    cli.done("worker", "--once")
    assert cli.documents("status", eid)[0]["status"] == "pending"
    cli.done("worker", "--once", "--queue", "default", "--queue", "finance")
    assert cli.documents("status", eid)[0]["status"] == "completed"


@pytest.mark.parametrize(
    "options",
    [
        ["--drain", "-1"],
        ["--drain", "nan"],
        ["--drain", "soon"],
        ["--session-ttl", "0"],
        ["--max-executions", "0"],
        ["--max-steps", "0"],
        ["--queue", "no queue"],
    ],
)
def test_options_out_of_range_are_usage_errors(cli: Cli, options: list[str]) -> None:
    cli.complaint(2, "worker", "--once", *options)


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "SIGINT")]
)
def test_a_signal_lets_running_steps_finish(
    cli: Cli, pipe: Path, number: signal.Signals, name: str
) -> None:
    eid = cli.done("start", "hold", pipe)
    with worker(cli) as process:
        wait_for(process, "the step runs")
        process.send_signal(number)
        assert wait_for(process, name) == (
            f"{name}: running steps have 30 s; a second signal stops at once"
        )
        pipe.write_text("finished", encoding="utf-8")
        assert rest(process) == f"worker w1 stopped: {name}\n"
        assert process.wait() == 0
    types = [entry["type"] for entry in cli.documents("status", eid, "--journal")]
    assert "frame.completed" in types
    cli.done("worker", "--once", "--queue", "slow")
    assert cli.documents("result", eid) == ["finished"]


def test_what_does_not_finish_in_time_is_handed_back_and_runs_again(cli: Cli, pipe: Path) -> None:
    eid = cli.done("start", "hold", pipe)
    with worker(cli, "--drain", "0") as process:
        wait_for(process, "the step runs")
        process.send_signal(signal.SIGTERM)
        assert rest(process).splitlines()[-1] == "worker w1 stopped: SIGTERM"
        assert process.wait() == 0
    assert cli.documents("status", eid)[0]["worker_id"] is None
    with worker(cli) as process:
        wait_for(process, "the step runs")
        pipe.write_text("second", encoding="utf-8")
        assert cli.documents("result", eid) == ["second"]
        process.send_signal(signal.SIGTERM)
        assert rest(process).endswith("worker w1 stopped: SIGTERM\n")
        assert process.wait() == 0
    epochs = {entry["epoch"] for entry in cli.documents("status", eid, "--journal")}
    assert epochs == {1, 2}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_stops_at_once(cli: Cli, pipe: Path, number: signal.Signals) -> None:
    cli.done("start", "hold", pipe)
    with worker(cli) as process:
        wait_for(process, "the step runs")
        process.send_signal(signal.SIGTERM)
        wait_for(process, "a second signal stops at once")
        process.send_signal(number)
        assert "stopped at once" in rest(process)
        assert process.wait() == 128 + number


def test_a_worker_serves_what_other_processes_ask_for(cli: Cli) -> None:
    with worker(cli) as process:
        assert cli.done("start", "greet", "Ada", "--wait") == '"Hello, Ada!"'
        eid = cli.done("start", "approve")
        cli.done("signal", eid, "approval", "yes")
        assert cli.done("result", eid) == '"yes"'
        process.send_signal(signal.SIGTERM)
        assert rest(process).endswith("worker w1 stopped: SIGTERM\n")
        assert process.wait() == 0


def test_a_missing_workflow_is_named_in_one_line(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "knows_nothing.py").write_text(
        "import perdure\nregistry = perdure.Registry()\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    cli.done("start", "greet", "Ada")
    result = cli("worker", "--once", "--app", "knows_nothing")
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert "  WARNING  perdure.worker  tasks wait for workflow 'greet' version '1'" in line


@pytest.mark.parametrize("debug", [False, True])
def test_a_record_is_one_line_and_a_traceback_is_for_debugging(
    capsys: pytest.CaptureFixture[str], debug: bool
) -> None:
    log = logging.getLogger("perdure.test")
    with logs_on_stderr(debug=debug):
        log.debug("a detail")
        try:
            int("one\ntwo")
        except ValueError:
            log.exception("it failed: %s", "\x1b[31m")
    lines = capsys.readouterr().err.splitlines()
    assert ("a detail" in lines[0]) == debug
    assert ("Traceback" in "\n".join(lines)) == debug
    if not debug:
        assert len(lines) == 1
        assert r"it failed: \u001b[31m: ValueError: invalid literal" in lines[0]
    assert logging.getLogger("perdure").handlers == []
