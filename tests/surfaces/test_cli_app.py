"""Does the command line find the registry, and say what is wrong when it does not?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import perdure
from perdure.surfaces.cli.target import load_registry
from tests.surfaces.support import APP, Cli, in_pipe

SOURCE = """
import perdure

registry = perdure.Registry()
other = perdure.Registry()
number = 7

for each in (registry, other):
    @each.workflow("hello", version="1")
    async def hello(ctx, name="Ada"):
        return f"hello {name}"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the current directory, with modules in it that no other test imports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    names = set(sys.modules)
    (tmp_path / "project_app.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "broken_app.py").write_text("1 / 0\n", encoding="utf-8")
    (tmp_path / "needy_app.py").write_text("import no_such_library\n", encoding="utf-8")
    package = tmp_path / "project_package"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "flows.py").write_text(SOURCE, encoding="utf-8")
    for name in set(sys.modules) - names:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


@pytest.mark.parametrize(
    "app",
    [
        "project_app",
        "project_app:registry",
        "project_app:other",
        "project_package.flows",
        "project_package.flows:registry",
        APP,
    ],
)
@pytest.mark.usefixtures("project")
def test_a_registry_is_named_by_module_and_attribute(app: str) -> None:
    assert isinstance(load_registry(app), perdure.Registry)


@pytest.mark.parametrize("command", [["start", "hello"], ["worker", "--once"]])
@pytest.mark.parametrize(
    ("app", "named"),
    [
        ("", "PERDURE_APP"),
        ("no_such_module:registry", "no module 'no_such_module'"),
        ("project_package.missing", "no module 'project_package.missing'"),
        ("project_app:missing", "no 'missing'"),
        ("project_package", "no 'registry'"),
        ("project_app:number", "of type int"),
        ("project_app.py", "module:attr"),
        ("./project_app:registry", "module:attr"),
        (":registry", "module:attr"),
    ],
)
@pytest.mark.usefixtures("project")
def test_what_is_missing_is_named(cli: Cli, command: list[str], app: str, named: str) -> None:
    sentence = cli.complaint(2, *command, PERDURE_APP=app)
    assert "--app" in sentence
    assert named in sentence


@pytest.mark.parametrize(
    ("app", "named"),
    [
        ("broken_app", "ZeroDivisionError: division by zero"),
        ("needy_app", "No module named 'no_such_library'"),
    ],
)
@pytest.mark.usefixtures("project")
def test_a_module_that_cannot_be_imported_is_refused(cli: Cli, app: str, named: str) -> None:
    sentence = cli.complaint(1, "start", "hello", "--app", app)
    assert f"module '{app}' cannot be imported" in sentence
    assert named in sentence
    assert "--debug" in sentence
    debugged = cli("start", "hello", "--app", app, "--debug")
    assert debugged.exit_code == 1
    assert f"{app}.py" in debugged.stderr
    assert "Traceback" in debugged.stderr


def test_the_current_directory_is_looked_in(project: Path) -> None:
    done = in_pipe("start", "hello", "--app", "project_app", cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    assert (project / "perdure.db").exists()


def test_settings_come_from_a_module(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a codec has written is read by a command that is given the codec, and by no other."""
    (tmp_path / "settings.py").write_text(
        "import base64\nfrom perdure import EngineConfig\n"
        "class Codec:\n"
        "    encode = staticmethod(base64.b85encode)\n"
        "    decode = staticmethod(base64.b85decode)\n"
        "config = EngineConfig(codec=Codec())\nnothing = 7\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    cli.done("--config", "settings", "start", "greet", "plain words")
    cli.done("--config", "settings:config", "worker", "--once", "--no-upkeep")
    (shown,) = cli.documents("list", PERDURE_CONFIG="settings")
    assert "plain words" in shown["result"]
    (hidden,) = cli.documents("list")
    assert list(hidden["result"]) == ["perdure:encoded"]
    assert "PayloadCodec" in cli.complaint(1, "result", shown["eid"])
    assert "EngineConfig" in cli.complaint(2, "--config", "settings:nothing", "list")
    assert "no module 'nowhere'" in cli.complaint(2, "--config", "nowhere:config", "list")
