# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh revoke`: takes an identity back at once, and says what that comes to. The work is in `mesh_revocation`."""

from __future__ import annotations

import datetime
import shlex
from typing import TYPE_CHECKING, Any

import click

from handfast.cli import connecting, durations, output, tables

if TYPE_CHECKING:
    from handfast.cli import mesh_revocation
    from handfast.rules.mesh import issued

_MOST_SHOWN = 10
_LONGEST = "36500d"


@click.command(name="revoke", short_help="Take an identity of the mesh back at once.")
@click.argument("account", metavar="[NAMESPACE/ACCOUNT]", required=False)
@click.option("--pod", metavar="NAMESPACE/POD", default=None, help="One Pod, and none of its neighbours.")
@click.option("--serial", metavar="HEX", default=None, help="One certificate, and not the next one of its workload.")
@click.option("--reason", default=None, help="Why, for people; it is in the object and in the server's log.")
@click.option(
    "--expires",
    metavar="DURATION|TIME",
    default=None,
    help="When it ends by itself, as in 12h or 2030-01-31T12:00:00Z.",
)
@click.option("--undo", is_flag=True, help="Give the identity again.")
@connecting.options
@output.format_option
@click.pass_context
def revoke(ctx: click.Context, /, kubeconfig: str | None, directory: str, form: str, **flags: Any) -> None:
    """Take back the identity of a service account, of one Pod, or one certificate.

    Its tokens are refused by the API server, and the identity service signs nothing more for it. Agents of the mesh are told
    which names and certificates to refuse. A second call changes nothing.
    """
    from handfast.cli import mesh_revocation

    target = mesh_revocation.read(flags["account"], flags["pod"], flags["serial"])
    if flags["undo"] and (flags["reason"] is not None or flags["expires"] is not None):
        raise output.Usage("--undo takes neither --reason nor --expires")
    if flags["reason"] == "":
        raise output.Usage("--reason is empty", hint="leave it out, or say why")
    expires = "" if flags["expires"] is None else _end(flags["expires"])
    chosen = connecting.chosen(ctx, kubeconfig, directory)

    import asyncio

    outcome = asyncio.run(_carry_out(chosen, target, flags, expires))
    if form == "text":
        output.result(_revoked(outcome) if outcome.revoked else _undone(outcome))
    else:
        output.result(output.document(_facts(outcome), form))
    _notes(outcome)


def _end(text: str) -> str:
    """An instant as the object has it."""
    from handfast.api import objects
    from handfast.runtime import clock

    now = clock.SystemClock().now()
    try:
        end = objects.parse_timestamp(text)
    except ValueError:
        end = now + durations.parse(text, "--expires", _LONGEST)
    if end <= now:
        raise output.Usage(f'--expires: "{text}" is over', hint="give a time to come, or a duration as in 12h")
    return objects.timestamp(end)


async def _carry_out(
    kubeconfig: str, target: mesh_revocation.Target, flags: dict[str, Any], expires: str
) -> mesh_revocation.Outcome:
    from handfast.cli import mesh_revocation
    from handfast.runtime import clock

    async with connecting.connected(kubeconfig) as reached:
        if flags["undo"]:
            return await mesh_revocation.undo(reached.client, target)
        return await mesh_revocation.revoke(reached.client, clock.SystemClock(), target, flags["reason"] or "", expires)


def _title(outcome: mesh_revocation.Outcome) -> str:
    word = {"account": "account", "pod": "Pod", "serial": "certificate"}[outcome.target.kind]
    return f"{word} {outcome.target.title}"


def _again(outcome: mesh_revocation.Outcome) -> str:
    flag = {"account": "", "pod": "--pod ", "serial": "--serial "}[outcome.target.kind]
    return f"handfast mesh revoke {flag}{shlex.quote(outcome.target.title)} --undo"


def _refused(outcome: mesh_revocation.Outcome) -> str:
    target = outcome.target
    if target.kind == "account":
        return f"the user {target.spec['user']} at the API server, and its identity in the mesh"
    if target.kind == "pod":
        return f"tokens bound to the Pod of UID {target.uid} at the API server, and its certificates in the mesh"
    return "this certificate in the mesh; its workload can get another one"


def _revoked(outcome: mesh_revocation.Outcome) -> str:
    now = "is refused from now on" if outcome.changed else "was refused already, and still is"
    rows = [
        ("refused", _refused(outcome)),
        ("certificates", _summary(outcome.certificates)),
        ("until", outcome.expires or "it is undone"),
        ("reason", output.printable(outcome.reason)),
        ("revocation", outcome.revocations[0]),
    ]
    text = "\n".join(f"  {key.ljust(12)}  {value}" for key, value in rows)
    shown = _table(outcome.certificates or ())
    return f"{_title(outcome)} {now}\n\n{text}\n{shown}\nTo undo it: {_again(outcome)}"


def _summary(certificates: Any) -> str:
    if certificates is None:
        return "not known: you may not read the ledger"
    if not certificates:
        return "none in force, by the ledger"
    last = _when(certificates[0].not_after)
    return (
        f"1 in force, until {last}"
        if len(certificates) == 1
        else f"{len(certificates)} in force, the last until {last}"
    )


def _table(certificates: Any) -> str:
    if not certificates:
        return ""
    rows = [
        (
            _when(row.not_after),
            row.serial,
            f"{row.holder.namespace}/{row.holder.pod}" if row.holder.pod else "-",
            _name(row),
        )
        for row in certificates[:_MOST_SHOWN]
    ]
    more = len(certificates) - len(rows)
    rest = f"\n… and {more} more: -o json has them all" if more else ""
    return f"\n{tables.table(('UNTIL', 'SERIAL', 'POD', 'NAME'), rows)}{rest}\n"


def _name(certificate: issued.Certificate) -> str:
    return next(iter(certificate.names), "-")


def _when(instant: datetime.datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"


def _undone(outcome: mesh_revocation.Outcome) -> str:
    were = "was" if len(outcome.revocations) == 1 else "were"
    gone = f"{', '.join(outcome.revocations)} {were} deleted" if outcome.changed else "nothing was deleted"
    if outcome.others:
        return f"{gone}, but others name {_title(outcome)}: {', '.join(outcome.others)}"
    now = "is believed again" if outcome.changed else "was not refused"
    return f"{_title(outcome)} {now}: {gone}"


def _facts(outcome: mesh_revocation.Outcome) -> dict[str, object]:
    target = outcome.target
    facts: dict[str, object] = {
        **target.spec,
        "revocations": list(outcome.revocations),
        "revoked": outcome.revoked,
        "changed": outcome.changed,
    }
    if not outcome.revoked:
        return facts | {"namedBy": list(outcome.others)}
    certificates = None if outcome.certificates is None else [_document(row) for row in outcome.certificates]
    return facts | {
        "reason": outcome.reason,
        "expires": outcome.expires or None,
        "exists": outcome.known,
        "certificates": certificates,
        "notRefused": [_document(row) for row in outcome.namesakes],
    }


def _document(row: issued.Certificate) -> dict[str, object]:
    return {
        "serial": row.serial,
        "sha256": row.fingerprint,
        "names": list(row.names),
        "pod": f"{row.holder.namespace}/{row.holder.pod}" if row.holder.pod else None,
        "until": _when(row.not_after),
    }


def _notes(outcome: mesh_revocation.Outcome) -> None:
    from handfast.rules.mesh import control_plane

    target = outcome.target
    if outcome.revoked and outcome.known is False:
        what = {
            "account": f"there is no account {target.title} now; whoever is called so is refused",
            "pod": f"there is no Pod {target.title} now; its certificates are refused",
            "serial": "the ledger has no certificate of the mesh in force with this serial number",
        }[target.kind]
        output.note(what)
    if outcome.namesakes:
        serials = ", ".join(row.serial for row in outcome.namesakes[:_MOST_SHOWN])
        output.warn(
            f"{len(outcome.namesakes)} certificates in force are of other Pods that were called {target.title}, and stay good: {serials}; "
            f"--serial refuses one, NAMESPACE/ACCOUNT all of an account"
        )
    if outcome.revoked and target.kind == "account" and target.name in control_plane.ACCOUNTS:
        output.warn(f"{target.title} may be an account of the mesh's own control plane, which then serves nobody")
    if outcome.others:
        output.note(f"`kubectl delete revocation {shlex.join(outcome.others)}` deletes them, too")
