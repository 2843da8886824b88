# SPDX-License-Identifier: Apache-2.0
"""No command takes an empty path or name, octets that are no text, or an output that nobody can write."""

import os
import pathlib
import subprocess
import sys

import click
import pytest

from handfast.cli import main, output, words
from tests.unit.cli.test_main import everything


def values():
    """Every option and argument of every command that takes a value, hidden ones included."""
    for ctx in everything():
        path = ctx.command_path.split()[1:]
        for parameter in ctx.command.params:
            if not isinstance(parameter, click.Option):
                yield path, parameter.name or "", ""
            elif not parameter.is_flag or parameter.flag_value is None:
                for flag in (*parameter.opts, *parameter.secondary_opts):
                    yield path, flag, flag


VALUES = [row for row in values() if row[2] not in words.EMPTY]


def run(arguments, capsys):
    code = output.run(main.command, arguments)
    return code, capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(("path", "name", "flag"), VALUES, ids=" ".join)
def test_an_empty_value_is_a_usage_error(path, name, flag, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for last in ([flag, ""], [f"{flag}="]) if flag else ([""],):
        code, lines = run([*path, *last], capsys)
        assert (code, lines[-1]) == (2, "reason: Usage")
        assert lines[0] in {f"error: {flag}: the value is empty", f"error: word {len(path) + 1} is empty"}
    assert not list(tmp_path.iterdir())


def test_the_sweep_sees_paths_and_names_of_many_commands():
    assert len(VALUES) > 150
    assert {name for _path, name, _flag in VALUES} >= {
        "--dir",
        "--kubeconfig",
        "--cert-dir",
        "--context",
        "names",
        "name",
    }


def test_whatever_may_be_empty_is_a_flag_that_is_there():
    assert set(words.EMPTY) <= {name for _path, name, _flag in values()}


def test_a_flag_of_which_empty_says_something_goes_through(capsys):
    code, lines = run(["config", "show", "--api-audiences", "", "--dir", "/nowhere"], capsys)
    assert (code, lines) == (0, [])


def test_a_value_with_an_equals_sign_at_its_end_is_no_empty_one():
    words.require_good(["token", "create", "--description", "a=", "--message=b=", "--", "x"], {})


@pytest.mark.parametrize(("path", "name", "flag"), VALUES, ids=" ".join)
def test_octets_that_are_no_text_are_a_usage_error(path, name, flag, capsys):
    code, lines = run([*path, *([flag] if flag else []), "a\udcff"], capsys)
    assert (code, lines[-1]) == (2, "reason: Usage")
    assert lines[0] == r"error: an argument is no text: 'a\xff'"


@pytest.mark.parametrize("name", ["HANDFAST_DIR", "HANDFAST_LISTEN", "KUBECONFIG"])
def test_a_variable_that_is_no_text_is_named(name, capsys, monkeypatch):
    monkeypatch.setitem(os.environ, name, "/\udcff")
    code, lines = run(["csr", "list"], capsys)
    assert (code, lines[0], lines[-1]) == (2, rf"error: ${name} is no text: '/\xff'", "reason: Usage")


def handfast(*arguments, **streams):
    command = [sys.executable, "-m", "handfast", *arguments]
    return subprocess.run(command, text=True, timeout=60, check=False, **streams)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["csr", "--help"],
        ["--version"],
        ["version"],
        ["token", "generate"],
        ["completion", "bash"],
        ["config", "show"],
    ],
    ids=" ".join,
)
def test_a_full_disk_behind_the_output_is_told(arguments):
    with pathlib.Path("/dev/full").open("w") as full:
        done = handfast(*arguments, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "error: standard output cannot be written: no space left on device"
    assert lines[-1] == "reason: OutputFailed"
    assert len(lines) == 3


@pytest.mark.slow
def test_a_reader_that_has_gone_is_told():
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = handfast("config", "show", stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "reason: OutputFailed")


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["csr", "explain", ""], 2), (["token", "generate"], 0)])
def test_a_full_disk_behind_the_errors_changes_nothing(arguments, code):
    with pathlib.Path("/dev/full").open("w") as full:
        done = handfast(*arguments, stdout=subprocess.PIPE, stderr=full)
    assert (done.returncode, bool(done.stdout)) == (code, code == 0)
