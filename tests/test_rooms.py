# SPDX-License-Identifier: Apache-2.0
"""The rooms are listed in their contracts, and the map of the rooms is as they are.

That the contracts are kept is `lint-imports`' to show, and that they fail when they should, `test_contracts`'.
"""

from __future__ import annotations

import configparser
import pathlib
import re
import types

import pytest

from handfast.assembly import controllers
from tests import source_text

ROOT = pathlib.Path(__file__).parents[1]
SOURCE = ROOT / "src" / "handfast"


def test_every_room_with_sub_rooms_has_its_layers():
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    contained = {row.get("containers") for row in contracts.values() if row.get("type") == "layers"}
    nested = {f"handfast.{path.parent.parent.name}" for path in SOURCE.glob("*/*/__init__.py")}
    assert nested
    assert nested <= contained


def test_every_controller_is_in_the_contract_of_controllers():
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    listed = set(contracts["importlinter:contract:controllers"]["modules"].split())
    text = pathlib.Path(controllers.__file__).read_text()
    known = {
        f"handfast.{'.'.join(path.relative_to(SOURCE).with_suffix('').parts)}"
        for path in (SOURCE / "controllers").rglob("*.py")
        if re.search(r"^NAME(: Final)? = ", path.read_text(), re.MULTILINE) and "def build(" in path.read_text()
    }
    assert len(known) > 10
    assert known == listed
    assert all(re.search(rf"\b{name.rpartition('.')[2]}\b", text) for name in known)


@pytest.fixture(scope="module")
def rooms() -> types.ModuleType:
    return source_text.script("rooms")


def test_the_map_is_as_the_rooms_are(rooms):
    assert [str(path.relative_to(ROOT)) for path in rooms.stale()] == [], "run `python scripts/rooms.py`"


def test_the_map_has_every_room(rooms):
    page = rooms.page()
    for name in rooms.rooms():
        top, _, sub = name.partition(".")
        assert f"\n## {top}\n" in page
        assert not sub or f"\n| {sub} | " in page


def test_a_new_import_makes_the_map_stale(rooms, tmp_path, monkeypatch):
    room = tmp_path / "room"
    for place, imports in ((room, "errors"), (tmp_path / "api", "nothing")):
        place.mkdir()
        head = f'"""A room.\n\nHolds: x.\nImports: {imports}.\nNever: y.\nStart: z.\n"""\n'
        (place / "__init__.py").write_text(head)
    (room / "words.py").write_text("from handfast import errors\n")
    monkeypatch.setattr(rooms, "SOURCE", tmp_path)
    assert rooms.stale() == [rooms.PAGE]
    (room / "words.py").write_text("from handfast import errors\nfrom handfast.api import kinds\n")
    found = rooms.rooms()["room"]
    assert rooms.imports_line(found, ["room", "api"]) == "Imports: api, errors."
    assert "Imports: api, errors." in rooms.with_imports(found, ["room", "api"])
    assert rooms.stale() == [room / "__init__.py", rooms.PAGE]
