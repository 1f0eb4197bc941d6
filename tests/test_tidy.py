"""Does the repository keep its own rules? Style that a machine can check is a test.

An exception is listed here with its reason. The lists may only shrink: an entry that is no longer
needed fails, and so does anything new. The layers are checked by import-linter (``make check``).
"""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FunctionType

import pytest

import perdure
import perdure.patterns
import perdure.testing

ROOT = Path(__file__).resolve().parent.parent
CODE = ("src", "tests", "examples", "bench")
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 500
MODULE_LINES_USUAL = 400
LONG_MODULES_SHARE_MAX = 0.1

# "path::function" or "path", and why it may be longer.
LONG_FUNCTIONS: dict[str, str] = {}
LONG_MODULES: dict[str, str] = {}

# "path::function", and why it cannot wait for a signal.
SLEEPS: dict[str, str] = {}

HOSTS = {
    "127.0.0.1",
    "example.com",
    "keepachangelog.com",
    "localhost",
    "semver.org",
    "www.apache.org",
}

# What a reader of the repository has no use for. The brackets keep a pattern from finding itself.
FOREIGN = {
    "a path of one machine": r"(?<![\w.~}>])/(?:root|home|work|Users|mnt)/\w",
    "a file on one machine": r"\b[f]ile://",
    "the host of a package registry": r"\bpy[p]i\.(?:org|python)|python[h]osted|registry\.[n]pm",
    "a number that means nothing here": r"(?i)\bissue #?\d",
    "a document that is not here": r"\bdesign/\d|\bshared/\w",
    "how a file was made": r"(?i)\b(?:ai|llm|machine)[- ](?:generated|written|assisted)\b",
}


@cache
def tracked() -> tuple[Path, ...]:
    """List the files of the project: what git knows or would add, else what lies here."""
    git = shutil.which("git")
    if git is not None and (ROOT / ".git").exists():
        command = [git, "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if listed.returncode == 0:
            paths = (ROOT / name for name in listed.stdout.split("\0") if name)
            return tuple(sorted(path for path in paths if path.is_file()))
    return tuple(sorted(_walk(ROOT)))


def _walk(folder: Path) -> Iterator[Path]:
    """List files below a folder, without environments, caches and results."""
    for path in folder.iterdir():
        if path.is_dir():
            hidden = path.name.startswith(".") and path.name != ".ci"
            if not hidden and path.name not in {"__pycache__", "build", "dist", "results"}:
                yield from _walk(path)
        elif not path.suffix.startswith(".db"):
            yield path


def modules(*folders: str) -> list[Path]:
    """List the Python files below some folders of the project."""
    return [
        path
        for path in tracked()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders
    ]


def name_of(path: Path) -> str:
    """Name a file as the lists above do."""
    return path.relative_to(ROOT).as_posix()


@cache
def parse(path: Path) -> ast.Module:
    """Read a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"))


Function = ast.FunctionDef | ast.AsyncFunctionDef


def placed(node: ast.AST, place: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Give every node of a tree with the qualified name of the function or class it is in."""
    for child in ast.iter_child_nodes(node):
        inner = place
        if isinstance(child, Function | ast.ClassDef):
            inner = f"{place}.{child.name}".removeprefix(".")
        yield inner, child
        yield from placed(child, inner)


def length(path: Path) -> int:
    """Count the lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def check_list(found: dict[str, object], excepted: dict[str, str], rule: str) -> None:
    """Compare what breaks a rule with what may break it."""
    new = {place: detail for place, detail in found.items() if place not in excepted}
    assert not new, f"{rule}: {new}"
    needless = sorted(excepted.keys() - found.keys())
    assert not needless, f"no longer needed, remove from the list: {needless}"


def test_functions_are_short() -> None:
    found: dict[str, object] = {}
    for path in modules(*CODE):
        for place, node in placed(parse(path)):
            if isinstance(node, Function):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    found[f"{name_of(path)}::{place}"] = lines
    check_list(found, LONG_FUNCTIONS, f"at most {FUNCTION_LINES_MAX} lines in a function")


def test_modules_are_short() -> None:
    lengths = {name_of(path): length(path) for path in modules(*CODE)}
    found: dict[str, object] = {
        name: lines for name, lines in lengths.items() if lines > MODULE_LINES_MAX
    }
    check_list(found, LONG_MODULES, f"at most {MODULE_LINES_MAX} lines in a module")


def test_nine_of_ten_modules_are_shorter_still() -> None:
    lengths = {name_of(path): length(path) for path in modules(*CODE)}
    longer = {name: lines for name, lines in lengths.items() if lines >= MODULE_LINES_USUAL}
    assert len(longer) <= LONG_MODULES_SHARE_MAX * len(lengths), longer


def defers_annotations(tree: ast.Module) -> bool:
    """Tell whether a module begins with ``from __future__ import annotations``."""
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in tree.body
    )


def test_modules_begin_with_a_docstring_and_deferred_annotations() -> None:
    trees = {name_of(path): parse(path) for path in modules(*CODE)}
    assert not [name for name, tree in trees.items() if not ast.get_docstring(tree)]
    assert not [name for name, tree in trees.items() if not defers_annotations(tree)]


def sleeps(tree: ast.Module) -> Iterator[str]:
    """Name the functions in a tree that wait for time to pass; ``sleep(0)`` only yields."""
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in {"time", "asyncio"}
        for alias in node.names
        if alias.name == "sleep"
    }
    calls = {"time.sleep", "asyncio.sleep", *imported}
    for place, node in placed(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in calls:
            yields = [ast.unparse(argument) for argument in node.args] == ["0"]
            if not yields:
                yield place


def test_tests_wait_for_signals_and_never_sleep() -> None:
    found: dict[str, object] = {
        f"{name_of(path)}::{name}": "sleeps"
        for path in modules("tests")
        for name in sleeps(parse(path))
    }
    check_list(found, SLEEPS, "a test waits for a signal")


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.sleep(1)",
        "async def test():\n    await asyncio.sleep(0.1)",
        "from time import sleep as wait\nwait(1)",
    ],
)
def test_a_sleep_is_found(source: str) -> None:
    assert list(sleeps(ast.parse(source)))


def test_a_yield_to_the_loop_is_no_sleep() -> None:
    assert not list(sleeps(ast.parse("async def test():\n    await asyncio.sleep(0)")))


def text_of(path: Path) -> str:
    """Read a file, or nothing if it is no text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def foreign(text: str) -> Iterator[str]:
    """Find what belongs to one machine, or to nobody who reads the repository."""
    for what, pattern in FOREIGN.items():
        for found in re.finditer(pattern, text):
            yield f"{what}: {found.group()}"
    for host in re.findall(r"https?://([\w.-]+)", text):
        if host not in HOSTS:
            yield f"a host that is not in the list of this test: {host}"


def test_files_say_nothing_about_where_and_how_they_were_made() -> None:
    found = {name_of(path): list(foreign(text_of(path))) for path in tracked()}
    assert not {name: items for name, items in found.items() if items}


@pytest.mark.parametrize(
    "text", ["see /ro" + "ot/x", "issue" + " 7", "https:/" + "/elsewhere.net/"]
)
def test_what_is_foreign_is_found(text: str) -> None:
    assert list(foreign(text))


def exported() -> Iterator[tuple[str, object]]:
    """Give every public name with what it means."""
    for module in (perdure, perdure.patterns, perdure.testing):
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)


def has_docstring(cls: type) -> bool:
    """Tell whether a class has a docstring that a person wrote; a dataclass makes up its own."""
    text = cls.__dict__.get("__doc__") or ""
    return bool(text) and not text.startswith(f"{cls.__name__}(")


def methods(cls: type) -> Iterator[tuple[str, object]]:
    """Give the public methods and properties that a class has from perdure."""
    kinds = (FunctionType, property, classmethod, staticmethod)
    for base in cls.__mro__:
        if base.__module__.startswith("perdure"):
            for name, member in vars(base).items():
                if isinstance(member, kinds) and not name.startswith("_"):
                    yield name, getattr(cls, name)


def test_public_names_have_docstrings() -> None:
    bare = []
    for name, thing in exported():
        if isinstance(thing, type):
            bare += [] if has_docstring(thing) else [name]
            bare += [f"{name}.{each}" for each, it in methods(thing) if not inspect.getdoc(it)]
        elif isinstance(thing, FunctionType) and not thing.__doc__:
            bare.append(name)
    assert not bare


def test_version_is_the_same_everywhere_and_in_the_changelog() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == perdure.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## \[?(Unreleased|\d+\.\d+\.\d+)", changelog, re.MULTILINE)
    assert {"Unreleased", project["version"]} & set(sections)
