# SPDX-License-Identifier: Apache-2.0
"""`handfast config`: shows what counts and why, and checks a file."""

import json

import pytest

from handfast.assembly import config
from handfast.cli import main, output

HEAD = f"apiVersion: {config.API_VERSION}\nkind: {config.KIND}\n"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for setting in config.SETTINGS:
        monkeypatch.delenv(setting.variable, raising=False)
    monkeypatch.delenv("HANDFAST_DIR", raising=False)


def run(*arguments):
    return output.run(main.command, ["config", *map(str, arguments)])


def test_show_says_where_each_value_comes_from(tmp_path, capsys, monkeypatch):
    (tmp_path / "config.yaml").write_text(HEAD + 'listen: "127.0.0.1:1"\nleaderElect: true\n')
    monkeypatch.setenv("HANDFAST_LOG_LEVEL", "debug")
    assert run("show", "--dir", tmp_path, "--advertise", "a:1", "--advertise", "b:2") == 0
    rows = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert rows["listen"] == ["127.0.0.1:1", f"{tmp_path}/config.yaml:", "listen"]
    assert rows["logLevel"] == ["debug", "$HANDFAST_LOG_LEVEL"]
    assert rows["advertise"] == ["a:1,b:2", "--advertise"]
    assert rows["leaderElect"][0] == "true"
    assert rows["store"] == ["store.db", "default"]


def test_show_as_yaml_is_a_configuration_file(tmp_path, capsys):
    flags = {"leader_elect": True, "log_level": "debug", "advertise": ["a:1", "b:2"]}
    typed = ("--leader-elect", "--log-level", "debug", "--advertise", "a:1", "--advertise", "b:2")
    assert run("show", "--dir", tmp_path, *typed, "-o", "yaml") == 0
    read = config.parse(capsys.readouterr().out.encode(), "f")
    meant = config.resolve(flags, {}, {}, "", config.UP_DEFAULTS)
    assert config.resolve({}, {}, read, "f").configuration == meant.configuration


def test_show_as_json_has_the_origins(tmp_path, capsys):
    assert run("show", "--dir", tmp_path, "--log-level", "debug", "-o", "json") == 0
    origins = json.loads(capsys.readouterr().out)["origins"]
    assert set(origins) == {setting.key for setting in config.SETTINGS}
    assert {key: origin for key, origin in origins.items() if origin != "default"} == {"logLevel": "--log-level"}


def test_a_named_file_must_exist(tmp_path, capsys):
    assert run("show", "--dir", tmp_path, "--config", tmp_path / "absent") == 1
    assert capsys.readouterr().err.splitlines()[-1] == "reason: FileNotFound"


def test_a_good_file_is_called_good_and_variables_that_hide_it_are_named(tmp_path, capsys, monkeypatch):
    path = tmp_path / "c.yaml"
    path.write_text(HEAD + "logLevel: debug\n")
    monkeypatch.setenv("HANDFAST_LOG_LEVEL", "info")
    assert run("validate", path) == 0
    out, err = capsys.readouterr()
    assert out == f"{path} is good\n"
    assert err == "note: $HANDFAST_LOG_LEVEL is set and goes before this file\n"
    assert run("validate", path, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["valid"] is True


def test_validate_refuses_with_a_suggestion(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text(HEAD + "loglevel: debug\n")
    assert run("validate", path) == 1
    assert capsys.readouterr().err.splitlines() == [
        f'error: {path}: unknown key "loglevel"',
        "hint: did you mean logLevel?",
        "reason: InvalidConfiguration",
    ]


def test_a_bad_flag_is_wrong_usage_and_a_bad_variable_is_not(tmp_path, capsys, monkeypatch):
    assert run("show", "--dir", tmp_path, "--listen", "x") == 2
    monkeypatch.setenv("HANDFAST_LISTEN", "x")
    assert run("show", "--dir", tmp_path) == 1
    assert "$HANDFAST_LISTEN" in capsys.readouterr().err
