# SPDX-License-Identifier: Apache-2.0
"""`handfast csr`: list, approve, deny and explain certificate requests. It prints; the rules are in `rules`.

Approving and denying is in `client.request_decisions`. Of several requests:

1. One that is not there, or is refused, does not keep the others from being tried. The first error is the error of the
   command; the others are notes.

Explaining asks what the approver asks, and writes nothing. If the caller may not ask, a note says that checks are missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from handfast import errors
from handfast.cli import candidates, connecting, csr_policies, output, tables

if TYPE_CHECKING:
    import datetime
    from collections.abc import Mapping, Sequence

    from handfast.api import objects, signing_requests
    from handfast.client import api
    from handfast.pki import certificates
    from handfast.rules import request_explanation
    from handfast.rules.policies import explanation as policy_explanation

# When it was last so, its reason and its message.
_Event = tuple[str, str, str]
_COLUMNS: Final = ("NAME", "AGE", "SIGNERNAME", "REQUESTOR", "NODE", "REQUESTEDDURATION", "CONDITION")
_MINOR: Final = ("REQUESTEDDURATION", "SIGNERNAME", "REQUESTOR")
# What is written with a verdict where the command line does not say why.
_SAID: Final = {
    "Approved": ("HandfastApprove", "This CSR was approved by handfast csr approve."),
    "Denied": ("HandfastDeny", "This CSR was denied by handfast csr deny."),
}


@click.group(name="csr", short_help="List, approve, deny and explain certificate requests.")
def command() -> None:
    """List, approve, deny and explain certificate requests, by which nodes and people get certificates."""


@command.command(name="list", short_help="List the certificate requests.")
@connecting.options
@output.format_option
@click.pass_context
def list_command(ctx: click.Context, kubeconfig: str | None, directory: str, form: str) -> None:
    """List the certificate requests of the cluster: what kubectl shows of them, and the node that each is for."""
    import asyncio

    from handfast.runtime import clock

    requests = asyncio.run(_list(connecting.chosen(ctx, kubeconfig, directory)))
    if form != "text":
        output.result(output.document({"apiVersion": "v1", "kind": "List", "items": requests}, form))
        return
    now = clock.SystemClock().now()
    rows = [_row(each, now) for each in requests]
    if rows:
        output.result(tables.table(_COLUMNS, rows, minor=_MINOR))
    else:
        output.note("there are no certificate requests")


def _row(document: objects.Document, now: datetime.datetime) -> tuple[str, ...]:
    from handfast.api.printing import access

    age, signer, requestor, duration, condition = map(str, access.certificatesigningrequest(document, now))
    return (str(document["metadata"]["name"]), age, signer, requestor, _node(document), duration, condition)


def _node(document: objects.Document) -> str:
    """The node that a request is for; a person's is for none."""
    from handfast.rules.certificates import kubelet

    try:
        return kubelet.read(document).node_name or "<none>"
    except errors.Refused:
        return "<unreadable>"


async def _list(kubeconfig: str) -> list[objects.Document]:
    from handfast.api import resources, signing_requests

    async with connecting.connected(kubeconfig) as reached:
        requests = await reached.client.list(resources.SIGNING_REQUESTS)
    # Lists of the API leave out what every item has in common.
    head = {"apiVersion": signing_requests.API_VERSION, "kind": signing_requests.KIND}
    return [{**head, **each} for each in requests]


@command.command(short_help="Approve certificate requests.")
@click.argument("names", metavar="NAME…", nargs=-1, required=True, shell_complete=candidates.requests)
@click.option("--message", default=None, help="Why, for whoever reads the condition.")
@connecting.options
@output.format_option
@click.pass_context
def approve(ctx: click.Context, /, names: tuple[str, ...], **flags: Any) -> None:
    """Approve certificate requests, so that their signer may sign them. An approval cannot be taken back."""
    _decide(ctx, "Approved", names, flags)


@command.command(short_help="Deny certificate requests.")
@click.argument("names", metavar="NAME…", nargs=-1, required=True, shell_complete=candidates.requests)
@click.option("--message", default=None, help="Why, for whoever reads the condition.")
@connecting.options
@output.format_option
@click.pass_context
def deny(ctx: click.Context, /, names: tuple[str, ...], **flags: Any) -> None:
    """Deny certificate requests. A denial cannot be taken back."""
    _decide(ctx, "Denied", names, flags)


def _require_name(name: str) -> str:
    """What the name of a request may be, by Kubernetes' rule for one step of a path."""
    if name in {".", ".."} or set(name) & set("/%"):
        raise output.Usage(
            f'"{name}" is no name of a certificate request',
            reason="BadRequestName",
            hint="a name has no / and no % in it; `handfast csr list` shows the names there are",
        )
    return name


def _decide(ctx: click.Context, verdict: str, names: Sequence[str], flags: dict[str, Any]) -> None:
    import asyncio

    for name in names:
        _require_name(name)
    path = connecting.chosen(ctx, flags["kubeconfig"], flags["directory"])
    done, failed = asyncio.run(_decide_all(path, verdict, list(dict.fromkeys(names)), flags["message"]))
    if flags["form"] != "text":
        rows = [{"name": name, "condition": verdict, "changed": changed} for name, changed in done]
        output.result(output.document({"requests": rows}, flags["form"]))
    else:
        for name, changed in done:
            output.result(f"certificate request {name} {'' if changed else 'was already '}{verdict.lower()}")
    # 1. errors come last, when all were tried
    for error in failed[1:]:
        output.note(error.message)
    if failed:
        raise failed[0]


async def _decide_all(
    kubeconfig: str, verdict: str, names: Sequence[str], message: str | None
) -> tuple[list[tuple[str, bool]], list[errors.HandfastError]]:
    from handfast.client import request_decisions
    from handfast.runtime import clock

    done: list[tuple[str, bool]] = []
    failed: list[errors.HandfastError] = []
    reason, said = _SAID[verdict]
    deciding = request_decisions.Deciding(verdict, reason, message or said, clock.SystemClock().now)
    async with connecting.connected(kubeconfig) as reached:
        for name in names:
            try:
                done.append((name, await deciding.decide(reached.client, name)))
            except errors.HandfastError as error:
                if error.reason in {"Forbidden", "Unauthorized"}:
                    error.hint = connecting.CHOOSE
                failed.append(error)
    return done, failed


@command.command(short_help="Say why a request is approved, denied or waiting.")
@click.argument("name", shell_complete=candidates.requests)
@connecting.options
@output.format_option
@click.pass_context
def explain(ctx: click.Context, name: str, kubeconfig: str | None, directory: str, form: str) -> None:
    """Say why a certificate request is approved, denied or waiting: every check, and what would change the outcome."""
    import asyncio

    explanation, events, issued, policies = asyncio.run(
        _explain(connecting.chosen(ctx, kubeconfig, directory), _require_name(name))
    )
    if form != "text":
        facts = {"name": name, **_explained(explanation, events, issued)}
        if policies:
            facts["policies"] = csr_policies.documents(policies)
        output.result(output.document(facts, form))
    else:
        _show(explanation, events, issued)
        csr_policies.show(policies)


def _explained(
    explanation: request_explanation.Explanation, events: Sequence[_Event], issued: Mapping[str, str]
) -> dict[str, Any]:
    """An explanation for machines."""
    rows = [{"check": row.name, "ok": row.passed, "compared": row.compared} for row in explanation.checks]
    facts: dict[str, Any] = {"verdict": explanation.verdict, "checks": rows, "change": explanation.remedy}
    if explanation.judge:
        facts["judge"] = explanation.judge
    if explanation.due.at is not None:
        facts["deleted"] = {"at": _instant(explanation.due.at), "rule": explanation.due.rule}
    if issued:
        facts["issued"] = dict(issued)
    if events:
        facts["events"] = [dict(zip(("at", "reason", "message"), row, strict=True)) for row in events]
    return facts


def _show(explanation: request_explanation.Explanation, events: Sequence[_Event], issued: Mapping[str, str]) -> None:
    """An explanation for people."""
    if explanation.checks:
        lines = [(row.name, "ok" if row.passed else "fails", row.compared) for row in explanation.checks]
        output.result(tables.table(("CHECK", "RESULT", "COMPARED"), lines) + "\n")
    # Whoever sent the request chose much of both: a line break in them must not begin a line.
    output.result(f"{output.printable(explanation.sentence)}\nto change that: {output.printable(explanation.remedy)}")
    if explanation.judge:
        output.result(f"judged by: {explanation.judge}")
    if issued:
        output.result("\n" + "\n".join(f"{key:<15} {output.printable(text)}" for key, text in issued.items()) + "\n")
    if events:
        shown = [tuple(map(output.printable, row)) for row in events]
        output.result("\n" + tables.table(("LAST SEEN", "EVENT", "MESSAGE"), shown) + "\n")
    if explanation.due.at is not None:
        at = _instant(explanation.due.at)
        output.result(f"if nothing changes, it is deleted at {at} (rule: {explanation.due.rule})")


def _instant(at: datetime.datetime) -> str:
    from handfast.api import objects

    return objects.timestamp(at)


async def _explain(
    kubeconfig: str, name: str
) -> tuple[request_explanation.Explanation, list[_Event], dict[str, str], list[policy_explanation.Row]]:
    """What the rules say of it, what controllers have said, what became of it, and what admission policies say."""
    from handfast.api import resources, signing_requests
    from handfast.runtime import clock

    async with connecting.connected(kubeconfig) as reached:
        from handfast.client import request_reviews

        request = await reached.client.view(resources.SIGNING_REQUESTS, name, signing_requests.DECODER)
        review = request_reviews.Review(reached.client, clock.SystemClock().now(), output.note)
        explanation = await review.explain(request)
        events = await review.events(request.metadata.uid)
        issued = await _issued(reached.client, request)
        policies = await csr_policies.rows(reached.client, request)
    return explanation, events, issued, policies


async def _issued(client: api.Client, request: signing_requests.Request) -> dict[str, str]:
    """Of a request that has its certificate: who asked, who approved, which certificate, and its entry in the ledger."""
    import base64

    from handfast.api import objects, signing_requests
    from handfast.pki import certificates, pem

    text = request.status.certificate
    if not text:
        return {}
    try:
        leaf = certificates.read(pem.certificates_from_pem(base64.b64decode(text))[0])
    except (ValueError, errors.Refused) as error:
        return {"certificate": f"cannot be read: {error}"}
    approved = request.condition(signing_requests.APPROVED) or signing_requests.Condition()
    groups = ", ".join(request.spec.groups or ())
    facts = {
        "asked by": f"{request.spec.username} (groups: {groups or 'none'})",
        "approved": f"{approved.reason}: {approved.message}",
        "serial": leaf.serial,
        "until": objects.timestamp(leaf.not_after),
    }
    return facts | {"ledger": await _entry(client, leaf)}


async def _entry(client: api.Client, leaf: certificates.Certificate) -> str:
    """What the ledger says of a certificate, and where."""
    from handfast.api import handfast_kinds
    from handfast.rules.ledger import entries, segments

    try:
        for segment in [segments.read(each) for each in await client.list(handfast_kinds.ISSUANCE_LOG)]:
            for number, stored in enumerate(segment.entries, start=1):
                if leaf.serial not in stored:
                    continue
                entry = entries.decode_stored(stored)
                if entry.certificate == leaf.fingerprint:
                    how = f"{entry.rule}, by {entry.authenticated_by} {entry.token_id}".rstrip()
                    return f"{segment.name}, entry {number}: {how}"
    except (errors.Refused, errors.Unavailable) as error:
        return f"was not read: {error.message}"
    return "has no entry for it: another program signed it, or the entry was deleted"
