# SPDX-License-Identifier: Apache-2.0
"""The first half of `handfast join`: from the plan to a cluster that is proven, and the bootstrap kubeconfig for it.

`client.discovery` searches. Here the discovery document is read, and what the search says and finds is printed. It writes
nothing.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.bootstrap import diagnosis, kubeconfig, tokens
from handfast.bootstrap import discovery as discovery_rules
from handfast.cli import output, token_input
from handfast.client import cluster_cache, discovery
from handfast.pki import pem, pins
from handfast.runtime import clock, files
from handfast.telemetry import log

# As kubeadm names them.
USER: Final = "tls-bootstrap-token-user"
CLUSTER: Final = "kubernetes"
_MAX_BYTES: Final = 1 << 20


class Discovered(msgspec.Struct, frozen=True):
    """The cluster, and the token to log in with; not `accepted`: the cluster did not say whether it lets the token in."""

    cluster: discovery.Cluster
    token: tokens.Token
    accepted: bool

    def kubeconfig(self) -> str:
        """The bootstrap kubeconfig."""
        return bootstrap_kubeconfig(self.cluster, self.token)

    def document(self, written: pathlib.Path | None = None) -> dict[str, Any]:
        """For machines; `written` is where the bootstrap kubeconfig is."""
        return {
            "server": self.cluster.server,
            "servers": list(self.cluster.info.servers),
            "clusterID": self.cluster.info.id or None,
            "caPins": self._pins(),
            "tokenID": self.token.id,
            "bootstrapKubeconfig": None if written is None else str(written),
            "joined": False,
            "tokenAccepted": self.accepted or None,
        }

    def table(self) -> str:
        """For people."""
        return (
            f"  server      {self.cluster.server}\n"
            f"  servers     {', '.join(self.cluster.info.servers)}\n"
            f"  CA          {', '.join(self._pins()) or 'the roots of this system'}\n"
            f"  cluster id  {self.cluster.info.id or 'not published'}\n"
            f"  token       {self.token.id}, {'accepted' if self.accepted else 'not checked'} for logging in\n"
        )

    def story(self) -> str:
        return f"found the cluster, and it is the right one\n\n{self.table()}\n"

    def _pins(self) -> list[str]:
        ca = self.cluster.info.ca
        return [] if ca is None else [str(pins.of_certificate(der)) for der in pem.certificates_from_pem(ca)]


async def find(plan: discovery_rules.Plan, seconds: float) -> Discovered:
    """The cluster of the plan, and whether it lets the token in; what a person may want to know is noted."""
    # What goes wrong is told as an error; the client's own remarks would come on top of it.
    log.configure(level="error")
    search = discovery.Discovery(clock.SystemClock(), timeout=seconds, report=output.note)
    if isinstance(plan.method, discovery_rules.ByToken):
        cluster = await search.by_token(plan.endpoints, plan.method)
    else:
        cluster = await _by_document(search, plan.method, plan)
    accepted = await search.login(cluster, plan.tls_token, signs=plan.signs)
    for text in cluster.notes:
        output.note(text)
    if not accepted:
        output.note(f"{cluster.server} did not say whether it lets the token {plan.tls_token.id} log in")
    return Discovered(cluster, plan.tls_token, accepted)


async def _by_document(
    search: discovery.Discovery, method: discovery_rules.ByDocument, plan: discovery_rules.Plan
) -> discovery.Cluster:
    text = await _document_text(search, method)
    try:
        return await search.by_document(text, plan.endpoints)
    except errors.Refused as refused:
        raise _naming_the_document(refused, method.source) from None


async def _document_text(search: discovery.Discovery, method: discovery_rules.ByDocument) -> str:
    if method.is_url:
        path = method.ca_file
        ca = None if path is None else _read(path, "name another file with --discovery-ca-file")
        return await search.fetch_document(method.source, ca)
    data = _read(method.source, "name another file, or an https URL, with --discovery-file")
    return diagnosis.decoded(data, _shown(method.source))


def _read(path: str, way_out: str) -> bytes:
    """All of a file, of what `<(command)` writes, or of stdin."""
    if path != token_input.STDIN:
        with files.otherwise(way_out):
            return files.read_given(pathlib.Path(path), limit=_MAX_BYTES)
    data = sys.stdin.buffer.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise errors.Refused(f"cannot read stdin: larger than {_MAX_BYTES} bytes", reason="FileTooLarge")
    return data


def _shown(source: str) -> str:
    return "stdin" if source == token_input.STDIN else source


def _naming_the_document(refused: errors.Refused, source: str) -> errors.Refused:
    """What is wrong with a document, with the name of the document."""
    if refused.reason != "BadKubeconfig":
        return refused
    return errors.Refused(
        f"--discovery-file {_shown(source)}: {refused.message}",
        reason=refused.reason,
        hint=refused.hint or "it is a kubeconfig with one cluster and no user, in YAML",
    )


def bootstrap_kubeconfig(cluster: discovery.Cluster, token: tokens.Token) -> str:
    """The kubeconfig of the user who is allowed to ask for a certificate, and to do little else."""
    text = kubeconfig.render(
        kubeconfig.Kubeconfig(
            context=f"{USER}@{CLUSTER}",
            cluster=kubeconfig.Cluster(name=CLUSTER, server=cluster.server),
            user=kubeconfig.User(name=USER, token=token.text),
        )
    )
    return cluster_cache.replaced(text, CLUSTER, cluster.info, cluster.server)
