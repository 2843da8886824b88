# SPDX-License-Identifier: Apache-2.0
"""The table of kinds: every row is complete and unambiguous, and rows come and go."""

from __future__ import annotations

import collections
import dataclasses
import itertools

import pytest

from handfast import errors
from handfast.api import kinds
from handfast.api.schema import schema

ROWS = kinds.builtin()
IDS = [f"{row.api_version}/{row.plural}" for row in ROWS]


def row(plural: str, group: str = "") -> kinds.Kind:
    return next(found for found in ROWS if found.resource == (group, plural))


@pytest.mark.parametrize("kind", ROWS, ids=IDS)
class TestEveryRow:
    def test_every_row_has_the_names_of_its_kind(self, kind: kinds.Kind) -> None:
        assert kind.plural == kind.plural.lower() != ""
        assert kind.kind[0].isupper()
        assert kind.singular
        assert kind.list_kind == kind.kind + "List"
        version = kind.version if kind.plural == "horizontalpodautoscalers" else "v1"
        assert kind.api_version == (f"{kind.group}/{version}" if kind.group else version)

    def test_has_a_schema(self, kind: kinds.Kind) -> None:
        assert schema.message(kind.message).name == kind.message

    def test_verbs_are_known(self, kind: kinds.Kind) -> None:
        assert set(kind.verbs) <= set(kinds.ALL_VERBS)
        for sub in kind.subresources:
            assert set(sub.verbs) <= set(kinds.ALL_VERBS)
            assert kind.subresource(sub.name) is sub

    def test_every_key_begins_with_the_prefix_of_its_row(self, kind: kinds.Kind) -> None:
        key = kind.key("space", "name")
        assert key.startswith(kind.prefix)
        assert key == kind.prefix + ("space/name" if kind.namespaced else "name")

    def test_stored_as_a_row_of_the_table(self, kind: kinds.Kind) -> None:
        stored = kinds.stored_row(kind)
        assert stored in ROWS
        assert stored.prefix == kind.prefix
        assert stored.api_version == kind.storage_api_version


def test_no_two_rows_are_asked_for_by_the_same_name() -> None:
    assert not [key for key, count in collections.Counter(IDS).items() if count > 1]
    counted = collections.Counter((found.api_version, found.kind) for found in ROWS)
    assert not [key for key, count in counted.items() if count > 1]


def test_no_prefix_begins_another() -> None:
    prefixes = sorted({found.prefix for found in ROWS})
    for one, other in itertools.pairwise(prefixes):
        assert not other.startswith(one)


def test_events_of_both_groups_are_one_collection() -> None:
    old, new = row("events"), row("events", "events.k8s.io")
    assert old.prefix == new.prefix == "core/events/"
    assert kinds.stored_row(new) is old
    assert (new.api_version, new.storage_api_version) == ("events.k8s.io/v1", "v1")


def test_unknown_subresource() -> None:
    assert row("secrets").subresource("status") is None


def test_which_kinds_an_update_creates() -> None:
    """As in Kubernetes: clients of these send an update and expect the object to be there afterwards."""
    created = {found.plural for found in ROWS if found.create_on_update}
    assert created >= {"endpoints", "endpointslices", "events", "leases", "roles", "rolebindings", "clusterroles"}
    assert not created & {"pods", "secrets", "configmaps", "nodes", "certificatesigningrequests"}


def test_namespaces_are_deleted_one_by_one() -> None:
    assert "deletecollection" not in row("namespaces").verbs


class TestTable:
    def test_a_row_is_found_by_its_exact_group_version_and_plural(self) -> None:
        table = kinds.Table(ROWS)
        assert table.find("", "v1", "secrets") is row("secrets")
        assert table.find("apps", "v1", "deployments") is row("deployments", "apps")
        for wrong in (("", "v2", "secrets"), ("apps", "v1", "secrets"), ("", "v1", "Secrets"), ("", "v1", "secret")):
            assert table.find(*wrong) is None
        assert len(list(table)) == len(ROWS)

    def test_the_largest_body(self) -> None:
        small = kinds.SMALL_BODY
        assert row("pods").largest_body() == (0, "")
        assert row("pods").largest_body("status") == (0, "")
        assert row("pods").largest_body("eviction") == (small, "Eviction")
        assert row("leases", "coordination.k8s.io").largest_body() == (small, "Lease")
        requests = row("certificatesigningrequests", "certificates.k8s.io")
        assert requests.largest_body("approval") == (small, "CertificateSigningRequest")

    def test_rows_come_and_go_while_somebody_looks(self) -> None:
        table = kinds.Table()
        added = kinds.Kind(
            group="example.com", version="v1", kind="Thing", plural="things", singular="thing", namespaced=True
        )
        table.add(added)
        for found in table:
            table.remove(found)
        assert table.find("example.com", "v1", "things") is None
        table.remove(added)
        assert list(table) == []

    def test_the_rows_it_was_made_with_stay(self) -> None:
        table = kinds.Table(ROWS)
        for plural, group, name in (
            ("secrets", "", "secrets"),
            ("leases", "coordination.k8s.io", "leases.coordination"),
        ):
            found = row(plural, group)
            for version in ("v1", "v9"):
                other = dataclasses.replace(found, message="", version=version)
                for change in (table.add, table.remove):
                    with pytest.raises(errors.Misuse, match=f"{name}.* is built in: no other row can take its place"):
                        change(other)
            assert table.find(group, "v1", plural) is found
            assert table.find(group, "v9", plural) is None
