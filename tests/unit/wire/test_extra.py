# SPDX-License-Identifier: Apache-2.0
"""What is missing is named, with the command that installs it."""

import importlib.util
import sys

import pytest

from handfast import errors
from handfast.wire import extra


def test_what_developers_install_has_the_extra():
    extra.require()


def test_a_missing_library_is_named_with_the_command(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "grpc" else real(name))
    with pytest.raises(errors.Refused) as refused:
        extra.require()
    assert refused.value.reason == "MeshExtraMissing"
    assert "grpcio" in refused.value.message
    assert "protobuf" not in refused.value.message
    assert extra.COMMAND in (refused.value.hint or "")


def test_a_library_whose_parent_is_missing_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf", None)

    def no_parent(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib.util, "find_spec", no_parent)
    with pytest.raises(errors.Refused, match="grpcio and protobuf and xds-protos"):
        extra.require()


def test_a_store_in_etcd_needs_less_and_has_a_command_of_its_own(monkeypatch):
    extra.require_etcd()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(errors.Refused, match="a store in etcd needs grpcio and protobuf, which") as refused:
        extra.require_etcd()
    assert refused.value.reason == "EtcdExtraMissing"
    assert extra.ETCD_COMMAND in (refused.value.hint or "")
