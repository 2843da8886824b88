# SPDX-License-Identifier: Apache-2.0
"""`handfast version`."""

import importlib.metadata
import json

from handfast.cli import main, output

VERSION = importlib.metadata.version("handfast")


def test_for_people_and_machines(capsys):
    assert output.run(main.command, ["version"]) == 0
    assert capsys.readouterr().out.startswith(f"handfast {VERSION} (Python 3.")
    assert output.run(main.command, ["version", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["handfast"] == VERSION


def test_as_a_flag(capsys):
    assert output.run(main.command, ["--version"]) == 0
    assert capsys.readouterr().out == f"handfast {VERSION}\n"
