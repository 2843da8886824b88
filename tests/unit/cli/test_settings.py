# SPDX-License-Identifier: Apache-2.0
"""Shared flags: what was given goes before all else, what was not given says nothing."""

import dataclasses

import click
import pytest

from handfast.assembly import config
from handfast.cli import output, settings
from handfast.datadir import layout
from handfast.runtime.addresses import Address

HEAD = f"apiVersion: {config.API_VERSION}\nkind: {config.KIND}\n"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for setting in config.SETTINGS:
        monkeypatch.delenv(setting.variable, raising=False)


def given(*arguments):
    """What a command with every flag is called with."""
    found = {}

    @click.command()
    @settings.setting_options(*(setting.key for setting in config.SETTINGS))
    def command(**flags):
        found.update(flags)

    assert output.run(command, list(arguments)) == 0
    return found


def test_nothing_given_is_the_defaults():
    flags = given()
    assert set(flags) == {setting.field for setting in config.SETTINGS}
    assert settings.from_flags(flags) == config.resolve({}, {}, {}, "").configuration


def test_flags_that_are_given_change_their_settings_and_no_other():
    chosen = settings.from_flags(
        given(
            *("--listen", "[::1]:1", "--advertise", "a:1", "--advertise", "b:2", "--store", "s"),
            *(
                "--admin-listen",
                "c:3",
                "--controllers",
                "clusterinfo,-tokencleaner",
                "--leader-elect",
                "--log-level",
                "error",
            ),
        )
    )
    assert chosen == dataclasses.replace(
        config.resolve({}, {}, {}, "").configuration,
        listen=Address("::1", 1),
        advertise=(Address("a", 1), Address("b", 2)),
        store="s",
        admin_listen=Address("c", 3),
        controllers=("clusterinfo", "-tokencleaner"),
        leader_elect=True,
        log_level="error",
    )


def test_a_supervised_child_hears_its_supervisor_only(monkeypatch):
    monkeypatch.setenv("HANDFAST_LOG_LEVEL", "nonsense")
    assert settings.from_flags({}).log_level == "info"


def test_the_file_of_the_directory_counts_if_it_is_there(tmp_path):
    place = layout.Layout.at(tmp_path)
    assert settings.load(place, {}, None).configuration.log_level == "info"
    (tmp_path / "config.yaml").write_text(HEAD + "logLevel: error\n")
    assert settings.load(place, {}, None).configuration.log_level == "error"
    (tmp_path / "other.yaml").write_text(HEAD + "logLevel: debug\n")
    assert settings.load(place, {}, str(tmp_path / "other.yaml")).configuration.log_level == "debug"
    assert settings.load(place, given("--no-leader-elect"), None).origins["leaderElect"] == "--leader-elect"
