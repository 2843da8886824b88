# SPDX-License-Identifier: Apache-2.0
"""Connections of bootstrap credentials: counted once, by kind, until they close."""

from __future__ import annotations

from collections.abc import Callable

from handfast.apiserver import identity
from handfast.apiserver.access import bootstrap_presence
from handfast.rules.machines import bootstrapper

MASTER = identity.User(bootstrapper.USER, bootstrapper.GROUPS, method="x509")
WORKER = identity.User(bootstrapper.USER, bootstrapper.GROUPS, method="service-account-secret")
OWN = identity.User(bootstrapper.USER, bootstrapper.GROUPS, method="service-account-token")
NODE = identity.User("system:node:a", ("system:nodes",), method="x509")


class Connection:
    def __init__(self) -> None:
        self.closed_hooks: set[Callable[[], None]] = set()


def counts(presence):
    return [presence.connections(kind) for kind in bootstrap_presence.KINDS]


def test_a_connection_counts_once_however_often_it_asks():
    presence, connection = bootstrap_presence.BootstrapPresence(), Connection()
    for _ in range(3):
        presence.note(connection, MASTER)
    assert counts(presence) == [1, 0, 0]
    assert len(connection.closed_hooks) == 1


def test_a_connection_counts_until_it_closes():
    presence, connection = bootstrap_presence.BootstrapPresence(), Connection()
    presence.note(connection, WORKER)
    assert counts(presence) == [0, 1, 0]
    for hook in connection.closed_hooks:
        hook()
    assert counts(presence) == [0, 0, 0]


def test_a_token_of_one_machine_is_no_shared_one():
    presence = bootstrap_presence.BootstrapPresence()
    presence.note(Connection(), OWN)
    assert counts(presence) == [0, 0, 1]


def test_nobody_else_counts():
    presence, connection = bootstrap_presence.BootstrapPresence(), Connection()
    presence.note(connection, NODE)
    assert counts(presence) == [0, 0, 0]
    assert not connection.closed_hooks
