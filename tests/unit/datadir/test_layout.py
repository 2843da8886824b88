# SPDX-License-Identifier: Apache-2.0
"""Paths of a data directory."""

import pathlib

from handfast.datadir import layout


def test_paths_are_absolute_and_below_the_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    place = layout.Layout.at("data")
    assert place.root == tmp_path / "data"
    assert place.ca_key == tmp_path / "data" / "pki" / "ca.key"
    assert place.store("store.db") == tmp_path / "data" / "store.db"
    assert place.store("/elsewhere/s.db") == pathlib.Path("/elsewhere/s.db")


def test_home_is_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert layout.Layout.at("~/x").root == tmp_path / "x"
