"""Does every command work with the settings that ``--config`` names, a codec among them?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.surfaces.support import Cli, in_pipe

SOURCE = """
import perdure
from perdure.patterns import delegate

class Shift:
    def encode(self, data):
        return bytes(byte ^ 1 for byte in data)

    decode = encode

registry = perdure.Registry()
config = perdure.EngineConfig(codec=Shift(), drain=7, session_ttl=11)
small = perdure.EngineConfig(payload_max=20)
number = 7

def shout(name):
    return name.upper()

@registry.workflow("greet", version="1")
@registry.workflow("greet", version="2")
async def greet(ctx, name):
    return await ctx.step(shout, name)

@registry.workflow("waits", version="1")
@registry.workflow("waits", version="2")
async def waits(ctx):
    return (await ctx.receive("x")).payload

@registry.workflow("asks", version="1")
async def asks(ctx):
    return (await delegate(ctx, "agents", "question")).payload
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the current directory, with a module in it that no other test imports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "shifted_app.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "broken_config.py").write_text("1 / 0\n", encoding="utf-8")
    for name in ("shifted_app", "broken_config"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


ENV = {"PERDURE_APP": "shifted_app", "PERDURE_CONFIG": "shifted_app"}


def stored(project: Path) -> bytes:
    """Give all that the files of the store hold."""
    return b"".join(path.read_bytes() for path in project.glob("test.db*"))


def test_every_command_works_with_the_codec(cli: Cli, project: Path) -> None:
    greeted = cli.done("start", "greet", "secret", **ENV)
    waiting = cli.done("start", "waits", **ENV)
    asking = cli.done("start", "asks", **ENV)
    cli.done("worker", "--once", "--drain", "0", **ENV)
    assert cli.documents("result", greeted, **ENV) == ["SECRET"]
    (row,) = cli.documents("status", greeted, **ENV)
    assert (row["args"], row["result"]) == ([["secret"], {}], "SECRET")
    for view in (["status", greeted, "--journal"], ["status", greeted, "--frames"]):
        assert "SECRET" in cli.done(*view, "--json", **ENV)
    assert "SECRET" in cli.done("watch", greeted, "--json", **ENV)
    cli.done("migrate", waiting, "2", **ENV)
    cli.done("signal", waiting, "x", "secret", **ENV)
    cli.done("consume", "--once", "--queue", "agents", "cat", **ENV)
    cli.done("worker", "--once", "--drain", "0", **ENV)
    assert cli.documents("result", waiting, **ENV) == ["secret"]
    assert cli.documents("result", asking, **ENV) == ["question"]
    override = 'root/shout#0="OVERRIDE"'
    fork = cli.done("fork", greeted, "root/shout#0", "--override", override, **ENV)
    cli.done("worker", "--once", "--drain", "0", **ENV)
    assert cli.documents("result", fork, **ENV) == ["OVERRIDE"]
    held = stored(project)
    assert b"perdure:encoded" in held
    for word in (b"secret", b"SECRET", b"OVERRIDE", b'"question"'):
        assert word not in held
    without = {"PERDURE_APP": "shifted_app", "PERDURE_CONFIG": ""}
    assert "PayloadCodec" in cli.complaint(1, "result", greeted, **without)
    assert list(cli.documents("status", greeted, **without)[0]["args"]) == ["perdure:encoded"]


@pytest.mark.usefixtures("project")
def test_the_option_stands_before_the_command_and_goes_before_the_environment(cli: Cli) -> None:
    env = {"PERDURE_APP": "shifted_app", "PERDURE_CONFIG": "broken_config"}
    named = ["--config", "shifted_app:small"]
    sentence = cli.complaint(2, *named, "start", "greet", "x" * 20, **env)
    assert "more than the 20 of payload_max" in sentence
    cli.done(*named, "start", "greet", "x", **env)


@pytest.mark.usefixtures("project")
def test_an_option_of_a_worker_goes_before_its_config() -> None:
    line = ["worker", "--app", "shifted_app", "--once", "--session-ttl", "nan"]
    here = Path.cwd()
    done = in_pipe(*line, cwd=here, env={"PERDURE_CONFIG": "shifted_app"})
    assert (done.returncode, "session_ttl is nan" in done.stderr) == (2, True)
    done = in_pipe(*line[:4], cwd=here, env={"PERDURE_CONFIG": "shifted_app"})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    [["start", "greet", "Ada"], ["worker", "--once"], ["list"], ["consume", "--queue", "a", "cat"]],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize(
    ("config", "code", "named"),
    [
        ("no_such_module:config", 2, "no module 'no_such_module'"),
        ("shifted_app:missing", 2, "name the EngineConfig in it"),
        ("shifted_app:number", 2, "of type int; name a perdure.EngineConfig"),
        ("shifted_app:registry", 2, "of type Registry"),
        ("shifted_app.py", 2, "app:config is config in app.py"),
        ("broken_config", 1, "ZeroDivisionError"),
    ],
)
@pytest.mark.usefixtures("project")
def test_what_is_missing_is_named(
    cli: Cli, command: list[str], config: str, code: int, named: str
) -> None:
    cli.done("start", "waits", PERDURE_APP="shifted_app")
    env = {"PERDURE_APP": "shifted_app", "PERDURE_CONFIG": config}
    sentence = cli.complaint(code, *command, **env)
    assert named in sentence
    assert code == 1 or "--config" in sentence
