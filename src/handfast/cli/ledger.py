# SPDX-License-Identifier: Apache-2.0
"""`handfast ledger`: lists, shows and verifies what is written down of every certificate issued. It changes nothing.

`rules.ledger.entries` says what an entry is, and `rules.ledger.verification` what can be wrong with the chain.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from handfast import errors
from handfast.api import signer_names
from handfast.cli import candidates, connecting, output, tables, token_input

if TYPE_CHECKING:
    import datetime

    from handfast.rules.ledger import entries, verification
    from handfast.rules.ledger import segments as ledger

_FIELDS = (
    ("issued", "issued_at"),
    ("until", "not_after"),
    ("signer", "signer"),
    ("names", "names"),
    ("serial", "serial"),
    ("key", "key_fingerprint"),
    ("certificate", "certificate"),
    ("requester", "requester"),
    ("authenticatedBy", "authenticated_by"),
    ("credential", "token_id"),
    ("tokenMadeBy", "token_maker"),
    ("rule", "rule"),
    ("request", "request"),
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_HEX = re.compile(r"[0-9a-f]{1,40}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_COLUMNS = ("ISSUED", "UNTIL", "NAME", "SIGNER", "SERIAL", "REQUESTER", "RULE")


@click.group(name="ledger", short_help="List, show and verify the certificates that were issued.")
def command() -> None:
    """List, show and verify the issuance ledger, in which signers record every certificate."""


@command.command(name="list", short_help="List the certificates that were issued.")
@click.option("--node", metavar="NAME", default="", help="Only those of this node.", shell_complete=candidates.nodes)
@click.option("--key", metavar="FINGERPRINT", default="", help="Only those of this public key: its SHA-256 in hex.")
@click.option("--serial", metavar="HEX", default="", help="Only those with this serial number.")
@click.option("--signer", metavar="NAME", default="", help="Only those of this signer; kubernetes.io/ may be left out.")
@click.option(
    "--since",
    metavar="DURATION|TIME",
    default="",
    help="Only those issued since, as in 24h, 2026-11-16 or 2026-11-16T08:00:00Z.",
)
@connecting.options
@output.format_option
@click.pass_context
def list_command(ctx: click.Context, /, kubeconfig: str | None, directory: str, form: str, **filters: str) -> None:
    """List the certificates that were issued, oldest first."""
    since = _since(filters["since"])
    _require_good(filters)
    segments = _segments(connecting.chosen(ctx, kubeconfig, directory))
    matching = [entry for entry in _entries(segments) if _matches(entry, filters, since)]
    if form != "text":
        output.result(output.document({"entries": [_document(entry) for entry in matching]}, form))
        return
    if not matching:
        output.note("no such certificate is in the ledger" if segments else "the ledger is empty")
        return
    rows = [_row(entry) for entry in matching]
    output.result(tables.table(_COLUMNS, rows, minor=("RULE", "REQUESTER", "SIGNER", "UNTIL")))
    _note_several(matching)


def _note_several(matching: Sequence[entries.Entry]) -> None:
    """Say of which requests there are more entries than certificates that they handed out."""
    seen = collections.Counter((entry.request, entry.key_fingerprint) for entry in matching if entry.request)
    several = sorted({request for (request, _), count in seen.items() if count > 1})
    if not several:
        return
    which = several[0] if len(several) == 1 else f"{several[0]} and {len(several) - 1} more"
    output.note(
        f"more than one entry for one request and one key: {which}. Two signers worked on it at once, one was cut short, or a request of "
        "this name was made again. A request hands out one certificate: `handfast csr explain NAME` shows which, as long as it is there"
    )


def _row(entry: entries.Entry) -> tuple[str, ...]:
    from handfast.api import objects

    # Workloads of the mesh have no common name: they are called by the first alternative name.
    name = next((name.removeprefix("CN=") for name in entry.names if name != "CN="), "")
    times = (objects.timestamp(entry.issued_at), objects.timestamp(entry.not_after))
    return (*times, name, entry.signer, entry.serial, entry.requester, entry.rule)


@command.command(short_help="Show what the ledger has of one certificate.")
@click.argument("which", metavar="SERIAL|REQUEST|SHA256")
@connecting.options
@output.format_option
@click.pass_context
def show(ctx: click.Context, which: str, kubeconfig: str | None, directory: str, form: str) -> None:
    """Show all that the ledger has of a certificate.

    Name it by its serial number, by the name of its CertificateSigningRequest, or by the SHA-256 of the certificate or
    of its public key. Several certificates may match.
    """
    matching = [
        entry for entry in _entries(_segments(connecting.chosen(ctx, kubeconfig, directory))) if _is(entry, which)
    ]
    if not matching:
        raise errors.Refused(
            f'nothing in the ledger has the serial number, request, certificate or key "{which}"',
            reason="NotFound",
            hint="`handfast ledger list` shows what there is",
        )
    documents = [_document(entry) for entry in matching]
    if form != "text":
        output.result(output.document({"entries": documents}, form))
        return
    output.result("\n\n".join(_lines(document) for document in documents))
    _note_several(matching)


def _lines(document: dict[str, Any]) -> str:
    texts = {key: ", ".join(value) if isinstance(value, list) else value for key, value in document.items()}
    texts = {key: value for key, value in texts.items() if value}
    width = max(map(len, texts))
    # Others chose these values. A line break in one must not begin a line, which could pass for another field.
    return "\n".join(f"{key.ljust(width)}   {output.printable(value)}" for key, value in texts.items())


@command.command(short_help="Verify that nothing in the ledger was changed.")
@click.option(
    "--head",
    "heads",
    metavar="HASH",
    multiple=True,
    help="A hash that an earlier verify printed; it must still be there. May be given for each chain.",
)
@connecting.options
@output.format_option
@click.pass_context
def verify(ctx: click.Context, heads: tuple[str, ...], kubeconfig: str | None, directory: str, form: str) -> None:
    """Verify that no entry of the ledger was changed, removed or moved.

    Whoever can write the store's file can also rewrite the whole chain. To notice that, note the hash that is printed
    somewhere else, and give it with --head the next time. Once the oldest segments were deleted, because everything in
    them had expired, such a hash is needed.
    """
    from handfast.rules.ledger import verification

    noted = [_hash(head) for head in heads if head]
    segments = sorted(_segments(connecting.chosen(ctx, kubeconfig, directory)), key=lambda segment: segment.sequence)
    findings = verification.verify_all(segments, noted)
    if form != "text":
        output.result(output.document(_report(segments, findings), form))
    elif findings:
        rows = [(finding.segment, str(finding.entry or "-"), finding.reason, finding.sentence) for finding in findings]
        output.result(tables.table(("SEGMENT", "ENTRY", "WHAT", "DETAIL"), rows))
    else:
        output.result(_praise(segments))
    if {finding.reason for finding in findings} == {verification.SHORTENED}:
        raise errors.Refused(
            findings[0].sentence,
            reason="LedgerShortened",
            hint=f"give a hash that was noted before with --head; {_heads_now(segments)}",
        )
    if findings:
        raise errors.Refused(
            f"the ledger is not what was written: {findings[0].sentence}",
            reason="LedgerChanged",
            hint="compare with a backup of the store; the audit log names who wrote what over the API",
        )


def _report(segments: Sequence[ledger.Segment], findings: Sequence[verification.Finding]) -> dict[str, Any]:
    rows = [
        {"segment": finding.segment, "entry": finding.entry, "what": finding.reason, "detail": finding.sentence}
        for finding in findings
    ]
    chains = _chains(segments)
    # Those of the chain without a name stand at the top, where they were before there was another.
    others = {chain: _counts(own) for chain, own in chains.items() if chain}
    return {"good": not findings, **_counts(chains.get("", ())), **others, "findings": rows}


def _counts(segments: Sequence[ledger.Segment]) -> dict[str, Any]:
    return {
        "segments": len(segments),
        "entries": sum(len(segment.entries) for segment in segments),
        "begins": segments[0].sequence if segments else None,
        "head": segments[-1].last_link if segments else None,
    }


def _chains(segments: Sequence[ledger.Segment]) -> dict[str, list[ledger.Segment]]:
    """The segments of each chain that has some."""
    chains: dict[str, list[ledger.Segment]] = {}
    for segment in segments:
        chains.setdefault(segment.chain, []).append(segment)
    return dict(sorted(chains.items()))


def _heads_now(segments: Sequence[ledger.Segment]) -> str:
    titles = {chain: f"of {chain}" if chain else "now" for chain in _chains(segments)}
    return "; ".join(f"the head {titles[chain]} is {own[-1].last_link}" for chain, own in _chains(segments).items())


def _praise(segments: Sequence[ledger.Segment]) -> str:
    if not segments:
        return "the ledger is empty"
    return "\n".join(_praised(chain, own) for chain, own in _chains(segments).items())


def _praised(chain: str, segments: Sequence[ledger.Segment]) -> str:
    count = sum(len(segment.entries) for segment in segments)
    first = segments[0]
    begins = "from the beginning" if first.sequence == 1 else f"from {first.name} on; older ones were deleted"
    held = f"{_counted(count, 'entry', 'entries')} in {_counted(len(segments), 'segment', 'segments')}"
    title = f"the chain {chain}" if chain else "the chain"
    return f"{title} holds: {held}, {begins}\nhead {segments[-1].last_link}"


def _counted(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def _hash(text: str) -> str:
    if text and (len(text) != 64 or set(text.lower()) - set("0123456789abcdef")):
        raise output.Usage(f'--head: "{text}" is no hash', hint="give the 64 hex digits that an earlier verify printed")
    return text.lower()


def _segments(kubeconfig: str) -> list[ledger.Segment]:
    import asyncio

    from handfast.rules.ledger import segments as ledger

    return [ledger.read(document) for document in asyncio.run(_fetch(kubeconfig))]


async def _fetch(kubeconfig: str) -> Sequence[Any]:
    from handfast.api import handfast_kinds, status

    logs = handfast_kinds.ISSUANCE_LOG
    async with connecting.connected(kubeconfig) as reached:
        try:
            return await reached.client.list(logs)
        except status.StatusError as error:
            if error.reason != "NotFound":
                raise
            raise errors.Refused(
                f"this API server does not serve {logs.plural}.{logs.group}",
                reason="NoLedger",
                hint="choose the kubeconfig of a Handfast API server with --kubeconfig, or define the kind there: "
                "handfast serve controllers --print-manifest",
            ) from None


def _entries(segments: Sequence[ledger.Segment]) -> list[entries.Entry]:
    """All that can be read, oldest first. A note says how many cannot."""
    from handfast.rules.ledger import entries

    readable, unreadable = [], 0
    for segment in sorted(segments, key=lambda segment: segment.sequence):
        for stored in segment.entries:
            try:
                readable.append(entries.decode_stored(stored))
            except errors.Refused:
                unreadable += 1
    if unreadable:
        left_out = "entry cannot be read and is" if unreadable == 1 else "entries cannot be read and are"
        output.note(f"{unreadable} {left_out} left out; `handfast ledger verify` says more")
    return sorted(readable, key=lambda entry: entry.issued_at)


def _since(text: str) -> datetime.datetime | None:
    from handfast.api import objects
    from handfast.runtime import clock

    if not text:
        return None
    try:
        # A plain date is its first instant.
        return objects.parse_timestamp(f"{text}T00:00:00Z" if _DATE.fullmatch(text) else text)
    except ValueError:
        pass
    try:
        ago = token_input.parse_ttl(text, "--since")
    except output.Usage:
        raise output.Usage(
            f'--since: "{text}" is neither a duration nor a time',
            hint="give a duration as in 24h or 7d, a date as in 2026-11-16 (UTC), or a time as in 2026-11-16T08:00:00Z",
        ) from None
    return None if ago is None else clock.SystemClock().now() - ago


def _require_good(filters: dict[str, str]) -> None:
    """Refuse what no entry can have: it is a typing mistake."""
    from handfast.api import objects
    from handfast.rules import revocation

    node, key, serial = filters["node"], filters["key"], filters["serial"]
    if node and objects.dns_subdomain(node) is not None:
        raise output.Usage(f'--node: "{node}" is no name of a node', hint=objects.SUBDOMAIN_WORDS)
    if key and not _SHA256.fullmatch(revocation.normal_key_fingerprint(key)):
        raise output.Usage(
            f'--key: "{key}" is no fingerprint of a key',
            hint="give the SHA-256 of the public key: 64 hex digits, with sha256: in front or without",
        )
    if serial and not _HEX.fullmatch(revocation.normal_serial(serial)):
        raise output.Usage(
            f'--serial: "{serial}" is no serial number',
            hint="give it in hex digits, 40 at most; 0x in front and colons between them are allowed",
        )


def _matches(entry: entries.Entry, filters: dict[str, str], since: datetime.datetime | None) -> bool:
    from handfast.rules import revocation, user_names

    node, key, serial, signer = filters["node"], filters["key"], filters["serial"], filters["signer"]
    return (
        (not node or f"CN={user_names.node_user(node)}" in entry.names)
        and (not key or revocation.normal_key_fingerprint(key) == entry.key_fingerprint)
        and (not serial or revocation.normal_serial(serial) == revocation.normal_serial(entry.serial))
        and (not signer or entry.signer in {signer, f"{signer_names.DOMAIN}/{signer}"})
        and (since is None or entry.issued_at >= since)
    )


def _is(entry: entries.Entry, which: str) -> bool:
    from handfast.rules import revocation

    fingerprint = revocation.normal_key_fingerprint(which)
    return (
        which == entry.request
        or fingerprint in {entry.certificate, entry.key_fingerprint}
        or (revocation.normal_serial(which) == revocation.normal_serial(entry.serial))
    )


def _document(entry: entries.Entry) -> dict[str, Any]:
    from handfast.api import objects

    document = {name: getattr(entry, field) for name, field in _FIELDS}
    instants = {name: objects.timestamp(document[name]) for name in ("issued", "until")}
    return document | instants | {"names": list(entry.names)}
