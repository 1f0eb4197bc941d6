"""Does a command answer tasks: with what it prints, in its own group, and across crashes?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from perdure import DelegateTask, Held, LeaseLost, PerdureError, StoreUnavailable
from perdure.surfaces.cli.guard import guarding
from perdure.surfaces.cli.program import StateFile
from tests.surfaces.support import COMMAND, Cli, environment, on_terminal, plain

TOLD = ("EID", "FID", "TASK_ID", "QUEUE", "ATTEMPT")
AGENTS = ("--queue", "agents")


@contextmanager
def consumer(cli: Cli, script: str, *options: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """Run a consumer process that is up, with both streams in one; kill it if it is still there."""
    with subprocess.Popen(
        [
            *(*COMMAND, "consume", "--store", cli.url, *AGENTS, "--holder", "c1", "--debug"),
            *(*options, "--", "sh", "-c", script),
        ],
        env=environment(**env),
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
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return line.removesuffix("\n")
    pytest.fail(f"ended with {process.wait()}, and never said {text!r}, but {seen}")


def rest(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a process, and give what else it says."""
    assert process.stdout is not None
    return process.stdout.read()


def ask(cli: Cli, *args: str) -> str:
    """Start an execution that delegates a task, and run it until it waits."""
    eid = cli.done("start", "ask", *args)
    cli.run_worker()
    return eid


def once(cli: Cli, script: str, *options: str) -> Any:
    """Answer what is ready, in this process."""
    result = cli("consume", *AGENTS, "--holder", "c1", "--once", *options, "--", "sh", "-c", script)
    assert result.exit_code == 0, result.output
    return result


def answer_of(cli: Cli, eid: str) -> Any:
    """Run a worker, and give the result of an execution that is to have ended."""
    cli.run_worker()
    (row,) = cli.documents("status", eid)
    assert row["status"] == "completed", row
    return row["result"]


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """Give a named pipe, which holds up whoever opens it, and tells when its writers are gone."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_what_a_command_prints_is_the_answer(cli: Cli) -> None:
    eid = ask(cli, '{"question": "ü"}')
    result = once(cli, "cat")
    assert result.stdout.startswith(f"consumer c1 is up: store {cli.url}; queues agents; command ")
    assert result.stdout.endswith("consumer c1 stopped: no task is ready\n")
    assert answer_of(cli, eid) == [{"question": "ü"}, "system:c1"]


def test_a_command_knows_its_task(cli: Cli) -> None:
    eid = ask(cli)
    told = " ".join(f'"$PERDURE_{name}"' for name in TOLD)
    once(cli, f"""printf '["%s","%s","%s","%s","%s"]' {told}""")
    eids, fid, task, queue, attempt = answer_of(cli, eid)[0]
    assert (eids, fid, queue) == (eid, "root/delegate-enqueue#0", "agents")
    assert (task, attempt) == (f"delegate:{eid}:delegate-enqueue#0", "1")


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 1; exit 3", "failed with exit status 3"),
        ("echo 1; kill -USR1 $$", "was ended by SIGUSR1"),
        ("true", "printed nothing; it is to print its answer as JSON"),
        ("echo good morning", "printed what is no JSON"),
        ("echo NaN", "printed what is no JSON"),
        (r"printf '\377'", "printed what is no JSON"),
        ("echo 1 2", "printed more than one JSON document; it began with 1 2"),
        ("yes '[' | head -c 100000", "printed what is no JSON"),
        ("yes 1", "printed more than 16 MiB and was stopped"),
    ],
)
def test_what_is_no_answer_returns_the_task(cli: Cli, script: str, told: str) -> None:
    eid = ask(cli)
    result = once(cli, script)
    assert f"task delegate:{eid}:delegate-enqueue#0 failed" in result.stderr
    assert f"it is returned to its queue for 1 s: the command {told}" in result.stderr
    assert result.stderr.count("\n") == 1
    cli.run_worker()
    (row,) = cli.documents("status", eid)
    assert row["status"] == "suspended"


def test_what_a_command_says_is_passed_on_with_its_task(cli: Cli) -> None:
    eid = ask(cli)
    result = once(cli, r"printf 'one\n\033[31mtwo\tthree\n\nend\377' >&2; echo 1")
    label = f"{eid[-8:]}:delegate-enqueue#0  "
    lines = ["one", r"\u001b[31mtwo\tthree", "", "end�"]
    assert result.stderr == "".join(f"{label}{line}\n" for line in lines)


def test_a_line_without_end_is_passed_on(cli: Cli) -> None:
    ask(cli)
    result = once(cli, "head -c 200000 /dev/zero | tr '\\0' x >&2; echo 1")
    assert result.stderr.count("x") == 200_000
    assert result.stderr.count("\n") > 1


def test_nothing_of_a_command_is_left_behind(cli: Cli, pipe: Path) -> None:
    """The answer does not wait for what the command has left in the background."""
    os.mkfifo(f"{pipe}.never")
    eid = ask(cli)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    result = once(cli, f"exec 3>{pipe}; cat {pipe}.never & echo 1")
    assert "failed" not in result.stderr
    os.set_blocking(reading, True)
    assert os.read(reading, 1) == b""  # until nobody holds it any more
    os.close(reading)
    assert answer_of(cli, eid)[0] == 1


def test_several_commands_run_at_a_time(cli: Cli, pipe: Path) -> None:
    """Each of two commands waits for the other: one writes a pipe that the other one reads."""
    first, second = ask(cli, f'"cat {pipe}"'), ask(cli, f'"echo 2 > {pipe}; echo 1"')
    once(cli, "sed 's/\"//g' | sh", "--limit", "2")
    assert (answer_of(cli, first)[0], answer_of(cli, second)[0]) == (2, 1)


WORK = """
state=$PERDURE_STATE_FILE
printf 'attempt %s has %s\\n' "$PERDURE_ATTEMPT" "$(cat "$state" 2>/dev/null)" >&2
[ -e "$state" ] && [ -z "$AGAIN" ] && { cat "$state"; exit; }
exec 3>"$PIPE"
echo '{"page": 17}' > "$state.new" && mv "$state.new" "$state"
echo working >&2
read never < "$PIPE.never"
"""


@pytest.mark.parametrize("line", ["is up", "attempt 1 has", "working", "kept the state"])
def test_killed_anywhere_it_goes_on_after_a_restart(cli: Cli, pipe: Path, line: str) -> None:
    """The command dies with its consumer; the next one has the same attempt and the state."""
    os.mkfifo(f"{pipe}.never")
    eid = ask(cli)
    with consumer(cli, WORK, "--ttl", "0.3", PIPE=str(pipe)) as process:
        if line != "is up":
            reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
            os.set_blocking(reading, True)
            wait_for(process, line)
        process.kill()
        if line in {"working", "kept the state"}:
            assert os.read(reading, 1) == b""  # until the command, which may write, is dead
    result = once(cli, f"cat >/dev/null; {WORK.replace('exec', 'echo 0; exit; exec')}")
    assert "attempt 1 has" in result.stderr
    answer, who = answer_of(cli, eid)
    assert answer == {"page": 17} or (answer == 0 and line != "kept the state")
    assert who == "system:c1"


def test_the_next_consumer_has_the_state(cli: Cli, pipe: Path) -> None:
    """A lease that expires: with the next attempt, under another holder."""
    os.mkfifo(f"{pipe}.never")
    eid = ask(cli)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with consumer(cli, WORK, "--ttl", "0.3", PIPE=str(pipe)) as process:
        wait_for(process, "kept the state")
        process.kill()
    os.close(reading)
    with (
        subprocess.Popen(
            [*COMMAND, "worker", "--app", "tests.surfaces.orders", "--store", cli.url],
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as worker,
        consumer(cli, WORK, "--holder", "c2", PIPE=str(pipe)) as process,
    ):
        wait_for(process, 'attempt 2 has {"page":17}')
        assert cli.documents("result", eid) == [[{"page": 17}, "system:c2"]]
        worker.terminate()


def test_state_that_is_no_json_is_not_kept(cli: Cli) -> None:
    ask(cli)
    result = once(cli, 'echo "{" > "$PERDURE_STATE_FILE"; exit 1')
    assert result.stderr.count("is no JSON and was not kept") == 1


class Lease:
    """A lease that renews as a test says."""

    def __init__(self, *outcomes: PerdureError | None) -> None:
        self.task = DelegateTask(UUID(int=1), "root/f#0", "reply", None, "delegate:1:x", "agents")
        self.state = [1]
        self.outcomes = list(outcomes)
        self.kept: list[Any] = []

    async def renew(self, state: Any) -> None:
        """Keep a state, or fail."""
        outcome = self.outcomes.pop(0)
        if outcome is not None:
            raise outcome
        self.kept.append(state)


async def test_a_state_is_kept_once_and_again_when_it_could_not_be(tmp_path: Path) -> None:
    lease = Lease(StoreUnavailable("for now"), None, None, LeaseLost("delegate:1:x", "c1"))
    path = tmp_path / "state.json"
    state = StateFile(path, cast("Held", lease))
    assert path.read_text(encoding="utf-8") == "[1]"
    for content in ("[1]", "[2]", "[2]", "[2]", "{", "", "[3]", "[3]"):
        path.write_text(content, encoding="utf-8")
        assert await state.keep() is None
    path.unlink()
    assert await state.keep() is None
    assert lease.kept == [[2], [3]]
    path.write_text("[4]", encoding="utf-8")
    assert isinstance(await state.keep(), LeaseLost)


def test_a_guard_kills_what_it_was_told_of(tmp_path: Path) -> None:
    """But not what has ended before, whose number may be somebody else's now."""
    files = tmp_path / "files"
    files.mkdir()
    groups = [subprocess.Popen(["cat"], stdin=subprocess.PIPE, process_group=0) for _ in range(2)]  # noqa: S607
    first, second = groups
    with guarding(str(files)) as guard:
        guard.add(first.pid)
        guard.add(second.pid)
        guard.remove(first.pid)
    assert second.wait() == -signal.SIGKILL
    assert not files.exists()
    assert first.poll() is None
    for group in groups:
        group.communicate()
    assert first.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_commands_finish(cli: Cli, pipe: Path, number: signal.Signals) -> None:
    eid = ask(cli)
    with consumer(cli, f"echo working >&2; cat {pipe}") as process:
        wait_for(process, "working")
        process.send_signal(number)
        name = number.name
        assert wait_for(process, name) == (
            f"{name}: running commands have 30 s; a second signal stops at once"
        )
        pipe.write_text('"done"', encoding="utf-8")
        assert rest(process) == f"consumer c1 stopped: {name}\n"
        assert process.wait() == 0
    assert answer_of(cli, eid)[0] == "done"


POLITE = 'trap "echo asked to stop >&2; exit" TERM; echo working >&2; read never < "$PIPE" & wait'
STUBBORN = 'trap "" TERM; echo working >&2; read never < "$PIPE"'


@pytest.mark.parametrize("script", [POLITE, STUBBORN])
def test_what_does_not_finish_in_time_is_ended_and_returned(
    cli: Cli, pipe: Path, script: str
) -> None:
    eid = ask(cli)
    options = ["--drain", "0", "--grace", "30" if script == POLITE else "0.1"]
    with consumer(cli, script, *options, PIPE=str(pipe)) as process:
        wait_for(process, "working")
        process.terminate()
        said = rest(process)
        assert ("asked to stop" in said) == (script == POLITE)
        assert said.endswith("consumer c1 stopped: SIGTERM\n")
        assert "failed" not in said
        assert process.wait() == 0
    once(cli, "echo 2")
    assert answer_of(cli, eid)[0] == 2


def test_a_second_signal_stops_at_once_and_kills(cli: Cli, pipe: Path) -> None:
    os.mkfifo(f"{pipe}.never")
    ask(cli)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    script = f"trap '' TERM; exec 3>{pipe}; echo working >&2; read never < {pipe}.never"
    with consumer(cli, script) as process:
        wait_for(process, "working")
        process.terminate()
        wait_for(process, "a second signal stops at once")
        process.terminate()
        assert "stopped at once; its commands are killed" in rest(process)
        assert process.wait() == 143
    os.set_blocking(reading, True)
    assert os.read(reading, 1) == b""  # until the command is dead
    os.close(reading)


@pytest.mark.parametrize("operation", ["cancel", "terminate"])
def test_a_command_ends_when_nobody_waits_for_it(cli: Cli, pipe: Path, operation: str) -> None:
    eid = ask(cli)
    with consumer(cli, POLITE, "--ttl", "0.3", PIPE=str(pipe)) as process:
        wait_for(process, "working")
        cli.done(operation, eid)
        cli.run_worker()
        wait_for(process, "asked to stop")
        process.terminate()
        rest(process)
        assert process.wait() == 0
    assert once(cli, "echo unexpected >&2").stderr == ""
    assert cli.documents("status", eid)[0]["status"].startswith(operation)


def test_a_command_that_is_not_there_takes_no_task(cli: Cli) -> None:
    complaint = cli.complaint(1, "consume", *AGENTS, "--once", "nosuch-command")
    assert complaint == "there is no command 'nosuch-command'; install it, or give its path"


def test_a_command_that_cannot_start_ends_the_consumer(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/nosuch/interpreter\n", encoding="utf-8")
    script.chmod(0o755)
    eid = ask(cli)
    result = cli("consume", *AGENTS, "--holder", "c1", str(script))
    assert result.exit_code == 1
    assert "cannot be started: No such file" in result.stderr.splitlines()[-1]
    assert "it is returned to its queue for 1 s" in result.stderr
    assert cli.documents("status", eid)[0]["status"] == "suspended"


@pytest.mark.parametrize(
    "args",
    [
        ["cat"],
        [*AGENTS],
        ["--queue", "no queue", "cat"],
        [*AGENTS, "--limit", "0", "cat"],
        [*AGENTS, "--ttl", "0", "cat"],
        [*AGENTS, "--grace", "nan", "cat"],
        [*AGENTS, "--drain", "-1", "cat"],
        [*AGENTS, "--holder", "session:1", "cat"],
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(cli: Cli, args: list[str]) -> None:
    cli.complaint(2, "consume", *args)


def test_options_behind_the_command_are_its_own(cli: Cli) -> None:
    eid = ask(cli)
    cli.done("consume", *AGENTS, "--once", "printf", "--", "7")
    assert answer_of(cli, eid)[0] == 7


@pytest.mark.parametrize("columns", [80, 200])
def test_a_queue_is_shown(cli: Cli, tmp_path: Path, columns: int) -> None:
    first, second = ask(cli), ask(cli, json.dumps("\x1b[31m" + "x" * 300))
    once(cli, "exit 1")
    lines = [line.split("\t") for line in cli.done("queues", "show", "agents").splitlines()]
    assert [line[:3] for line in lines] == [
        [f"delegate:{eid}:delegate-enqueue#0", "delayed", "delegate"] for eid in (first, second)
    ]
    (document,) = cli.documents("queues", "show", "agents", "--limit", "1")
    assert (document["eid"], document["state"]) == (first, "delayed")
    assert cli.done("queues", "show", "nosuch") == ""
    assert "only 1 are shown" in cli("queues", "show", "agents", "--limit", "1").stderr
    cli.complaint(2, "queues", "show", "no queue")
    args = ("queues", "show", "agents", "--store", cli.url)
    code, shown = on_terminal(*args, cwd=tmp_path, columns=columns)
    text = plain(shown).splitlines()
    assert (code, text[0]) == (0, "0 ready, 2 delayed, 0 leased")
    assert all(len(line) <= columns for line in text)
    assert first in text[2]
    assert "\x1b[31mx" not in shown
