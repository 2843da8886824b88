# SPDX-License-Identifier: Apache-2.0
"""What to type to call this program again, from where it was started."""

import pathlib
import sys

import pytest

from handfast.cli import invocation


@pytest.fixture
def script(tmp_path, monkeypatch):
    """An environment with the program in it, as `make` makes one; nothing else is on PATH."""
    path = tmp_path / "my checkout" / ".venv" / "bin" / "handfast"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path.with_name("python")))
    monkeypatch.setattr(sys, "argv", [str(path)])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return path


def test_below_the_current_directory_its_path_from_there(script, monkeypatch):
    monkeypatch.chdir(script.parents[2])
    monkeypatch.setattr(sys, "argv", [".venv/bin/handfast"])
    assert invocation.program() == ".venv/bin/handfast"


def test_elsewhere_its_whole_path_quoted_for_a_shell(script, monkeypatch):
    monkeypatch.chdir(script.parent)
    (script.parents[3] / "other").mkdir()
    monkeypatch.chdir(script.parents[3] / "other")
    assert invocation.program() == f"'{script}'"


def test_on_the_path_its_name_also_by_a_link(script, monkeypatch, tmp_path):
    """As pipx installs it."""
    (tmp_path / "handfast").symlink_to(script)
    assert invocation.program() == "handfast"


def test_another_program_of_that_name_is_not_this_one(script, monkeypatch, tmp_path):
    other = tmp_path / "handfast"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.chdir(script.parents[2])
    assert invocation.program() == ".venv/bin/handfast"


def test_a_module_is_called_by_the_script_beside_its_python(script, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/handfast/__main__.py"])
    monkeypatch.chdir(script.parents[2])
    assert invocation.program() == ".venv/bin/handfast"


def test_without_a_script_the_module_is_named(script, monkeypatch):
    script.unlink()
    python = pathlib.Path(sys.executable)
    assert invocation.program() == f"'{python}' -m handfast"
