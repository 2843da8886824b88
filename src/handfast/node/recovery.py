# SPDX-License-Identifier: Apache-2.0
"""The node's half of recovery: an expired certificate asks for the next one, where the API server's policy lets it.

Whether it is let is the server's decision alone, and `node run` asks by itself at every start. This is for a person who
wants to know at once: it asks one time, and says what to do where the answer is no.

1. There is a pair, it is a node's, and it has expired. One that is in force needs no recovery, and one that is not there
   cannot be recovered.
2. The request is made with the expired pair and a fresh key, for the same name: the server lets it ask for nothing else.
3. A server that knows no recovery answers 401, as to anybody with an expired certificate.
"""

from __future__ import annotations

import dataclasses
import pathlib

from handfast import errors
from handfast.api import status
from handfast.client import api, transport
from handfast.client import connection as connections
from handfast.node import certificate_store, renewal
from handfast.pki import pairs
from handfast.rules import user_names
from handfast.rules.certificates import wishes
from handfast.runtime import clock as clocks


def node_of(pair: pairs.Pair) -> str:
    """Whose certificate it is."""
    name = pair.leaf.subject.common_name
    if not (node := user_names.node_named(name)):
        raise errors.Refused(
            f"the certificate is that of {name!r}, which is no node",
            reason="NotANode",
            hint="name another directory with --cert-dir",
        )
    return node


def expired(store: certificate_store.CertificateStore, clock: clocks.Clock) -> pairs.Pair | None:
    """The pair to recover by (1); None where the one that is there is in force."""
    stored = store.find()
    if stored.pair is None:
        why = "".join(f"; {problem.message}" for problem in stored.problems)
        raise errors.Refused(
            f"there is no certificate in {store.directory}{why}",
            reason="NoCertificate",
            hint="join this machine with: handfast join; or name another directory with --cert-dir",
        )
    return None if certificate_store.unexpired(stored.pair, clock.now()) else stored.pair


async def recover(
    store: certificate_store.CertificateStore,
    pair: pairs.Pair,
    kubeconfig: pathlib.Path,
    *,
    clock: clocks.Clock,
    seconds: float,
) -> pairs.Pair:
    """The next pair, stored (2)."""
    node = node_of(pair)
    described = connections.load(str(kubeconfig))
    link = transport.Transport(
        dataclasses.replace(
            described, cert_pem=pair.certificate_pem, key_pem=pair.key_pem, token=None, token_file=None
        ),
        clock=clock,
    )
    try:
        return await renewal.renew(store, api.Client(link), wishes.node_client(node), clock=clock, seconds=seconds)
    except status.StatusError as error:
        if error.code not in {401, 403}:
            raise
        raise refused(node, described.server, error) from None
    finally:
        await link.close()


def refused(node: str, server: str, error: status.StatusError) -> errors.Refused:
    """The error for a server that does not let the node recover (3)."""
    return errors.Refused(
        f"{server} does not let node {node} recover by its expired certificate: {error.message}",
        reason="NotRecoverable",
        hint="on a control plane run: handfast token create --print-join-command --ttl 1h --max-uses 1 "
        f"--node {node}; then run what it prints on this machine",
    )
