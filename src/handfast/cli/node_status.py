# SPDX-License-Identifier: Apache-2.0
"""What `handfast node status` shows: the certificate on disk, what the agent says of itself, the server and its clock; and
whether that server accepts the certificate.

It changes nothing, and does not decide the exit code. The certificate is shown to the kubeconfig's server alone, over TLS
that is verified, in one request for this node's own Node: as its agent does all the time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import pathlib
from typing import Any

from handfast import errors
from handfast.api import objects, resources, status
from handfast.bootstrap import diagnosis
from handfast.client import anonymous, api, connection, transport
from handfast.node import certificate_store, report
from handfast.pki import pairs
from handfast.rules import user_names
from handfast.runtime import clock, files


def look(directory: pathlib.Path, kubeconfig: pathlib.Path, *, named: bool) -> dict[str, Any]:
    """All that is known. A running agent says itself which kubeconfig is its own, unless one was `named`."""
    now = clock.SystemClock()
    store = certificate_store.CertificateStore(directory, certificate_store.CLIENT, now)
    with files.otherwise("name another directory with --cert-dir"):
        # First: it has the better advice for who is not the owner.
        seen = report.read(directory)
        kept = store.find()
    if seen is not None and not report.is_fresh(seen, now.now()):
        seen = None
    if seen is not None and seen.kubeconfig and not named:
        kubeconfig = pathlib.Path(seen.kubeconfig)
    server, difference, trouble = asyncio.run(_server(kubeconfig))
    if server is None and seen is not None:
        server = seen.server or None
    in_force = kept.pair is not None and certificate_store.unexpired(kept.pair, now.now())
    refused = asyncio.run(_refused(kubeconfig, kept.pair)) if kept.pair and in_force and trouble is None else None
    return {
        "node": _name(kept.pair) if seen is None else seen.node,
        "certificate": None if kept.pair is None else _certificate(kept.pair, str(kept.path), now.now()),
        "unusable": [problem.message for problem in kept.problems],
        "agent": None if seen is None else _agent(seen),
        "server": server,
        "clockDifferenceSeconds": difference,
        "serverTrouble": trouble,
        "refused": refused,
    }


def _name(pair: pairs.Pair | None) -> str | None:
    return None if pair is None else pair.leaf.subject.common_name.removeprefix(user_names.NODE_PREFIX)


def _certificate(pair: pairs.Pair, path: str, now: datetime.datetime) -> dict[str, Any]:
    leaf = pair.leaf
    return {
        "subject": str(leaf.subject),
        "serial": leaf.serial,
        "notBefore": objects.timestamp(leaf.not_before),
        "notAfter": objects.timestamp(leaf.not_after),
        "inForce": leaf.not_before <= now < leaf.not_after,
        "file": path,
    }


def _agent(seen: report.Report) -> dict[str, Any]:
    return {
        "pid": seen.pid,
        "phase": seen.phase,
        "endpoint": seen.endpoint,
        "rotation": seen.rotation,
        "serverRotation": seen.server_rotation,
        "nextRenewal": seen.next_renewal or None,
        "lastError": seen.last_error or None,
        "servingNotAfter": seen.serving_not_after or None,
        "pods": seen.pods,
        "staticPods": list(seen.static_pods),
        "problems": dict(seen.problems),
    }


async def _server(kubeconfig: pathlib.Path) -> tuple[str | None, float | None, str | None]:
    """The API server, how far this machine's clock is ahead of its, and why it cannot be asked; no credential is sent."""
    try:
        described = connection.load(str(kubeconfig))
    except (errors.Refused, errors.Unavailable) as error:
        return None, None, error.message
    try:
        answer = await anonymous.ask(described.server.rstrip("/") + "/version", anonymous.Trust(described.ca_pem))
    except anonymous.Troubled as troubled:
        return (
            described.server,
            None,
            diagnosis.explain(troubled.trouble, described.server, troubled.detail, None).message,
        )
    skew = diagnosis.skew(answer.date, clock.SystemClock().now())
    return described.server, None if skew is None else skew.total_seconds(), None


async def _refused(kubeconfig: pathlib.Path, pair: pairs.Pair) -> str | None:
    """Why the server does not let this certificate in; None: it does, or nobody can say."""
    described = dataclasses.replace(
        connection.load(str(kubeconfig)),
        cert_pem=pair.certificate_pem,
        key_pem=pair.key_pem,
        token=None,
        token_file=None,
    )
    link = transport.Transport(described, clock=clock.SystemClock())
    try:
        await api.Client(link).find(resources.NODES, _name(pair) or "")
    except status.StatusError as error:
        if error.code not in {401, 403} or isinstance(error, transport.UnexpectedAnswer):
            return None
        return (
            f"{described.server} does not accept this certificate ({error.code} {error.reason}): the node was revoked, or "
            f"another CA is trusted there; on a control plane look with: kubectl get revocations; handfast ledger show "
            f"{pair.leaf.serial}"
        )
    except errors.Unavailable:
        return None
    finally:
        await link.close()
    return None


def shown(facts: dict[str, Any]) -> str:
    """For people."""
    certificate, agent = facts["certificate"], facts["agent"]
    rows = [("node", facts["node"] or "unknown")]
    if certificate is None:
        rows.append(("certificate", "none"))
    else:
        word = "in force" if certificate["inForce"] else "NOT in force"
        word = "REFUSED" if facts["refused"] else word
        rows += [
            ("certificate", f"{certificate['subject']}, {word}"),
            ("valid", f"{certificate['notBefore']} to {certificate['notAfter']}"),
            ("file", certificate["file"]),
        ]
    if facts["refused"]:
        rows.append(("refused", facts["refused"]))
    rows += [("unusable", text) for text in facts["unusable"]]
    if agent is None:
        rows.append(("agent", "not running"))
    else:
        renewal = agent["nextRenewal"] or ("not known yet" if agent["rotation"] else "off")
        rows += [
            ("agent", f"{agent['phase']}, process {agent['pid']}, {agent['endpoint']}"),
            ("renewal", renewal),
            ("last error", agent["lastError"] or "none"),
            ("Pods", f"{agent['pods']} of the API, {len(agent['staticPods'])} static"),
        ]
        rows += [("problem", f"{name}: {why}") for name, why in sorted(agent["problems"].items())]
    trouble = facts["serverTrouble"]
    if facts["server"] is None:
        rows += [("server", f"unknown: {trouble}"), ("clock", "not compared; name the kubeconfig with --kubeconfig")]
    else:
        compared = _clock(facts["clockDifferenceSeconds"]) if trouble is None else f"not compared: {trouble}"
        rows += [("server", facts["server"]), ("clock", compared)]
    return "\n".join(f"{name:<12} {text}" for name, text in rows)


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "the server does not say its time"
    # The server's is told in whole seconds.
    if abs(seconds) < 2:
        return "agrees with the server's"
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} the server's"
