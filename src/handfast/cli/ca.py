# SPDX-License-Identifier: Apache-2.0
"""`handfast ca`: shows whom a control plane trusts and who signs, and replaces the CA or the key of tokens step by step.

It works on a data directory, whether it is being served or not. `datadir.rotation.sequence` goes from step
to step, and `datadir.rotation.steps` says what each does.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib import parse as urls

import click

from handfast import errors
from handfast.assembly import config
from handfast.cli import connecting, output, rotation_report, settings, tables
from handfast.datadir import layout
from handfast.runtime import addresses, files
from handfast.runtime import clock as clocks

if TYPE_CHECKING:
    from handfast.client import api
    from handfast.datadir import trust_overview
    from handfast.rules import trust_rotation

_DIRECTORY: Final = "./handfast-data"
_ABOUT: Final[Mapping[str, Mapping[str, str]]] = {
    "ca": {
        "add": "make the new CA, and trust it beside the old one",
        "publish": "publish both CAs, so that every client learns of the new one",
        "switch": "sign with the other CA",
        "reissue": "issue the control plane's own certificates anew",
        "retire": "stop trusting the old CA; this cannot be undone",
        "drop": "drop the new CA",
    },
    "service-account-key": {
        "add": "make the new key, and accept its tokens beside those of the old one",
        "publish": "publish both keys in the API server",
        "switch": "sign tokens with the other key",
        "retire": "stop accepting the tokens of the old key; this cannot be undone",
        "drop": "drop the new key",
    },
}


@click.group(name="ca", short_help="Show or replace the CA and the key of service account tokens.")
def command() -> None:
    """Show or replace the certificate authority and the key of service account tokens of a data directory."""


@contextlib.contextmanager
def _locked_unless_served(place: layout.Layout) -> Iterator[bool]:
    """Whether the directory is being served. Where it is not, it is locked: nobody can begin to while the block runs."""
    if not place.ca_certificate.exists():
        raise errors.Refused(
            f"{place.root} is no data directory: there is no {place.ca_certificate}",
            reason="NoDataDirectory",
            hint=layout.ELSEWHERE,
        )
    try:
        lock = files.lock_directory(place.root)
    except errors.Refused as refused:
        if refused.reason != "DirectoryInUse":
            raise
        yield True
        return
    try:
        yield False
    finally:
        lock.release()


@contextlib.asynccontextmanager
async def _reach(place: layout.Layout, chosen: config.Configuration, *, running: bool) -> AsyncIterator[api.Client]:
    if running:
        async with connecting.connected(str(place.admin_kubeconfig)) as reached:
            yield reached.client
        return
    from handfast.assembly import init
    from handfast.client import connection
    from handfast.telemetry import log

    log.configure(level="error")
    # If the configuration leaves the port open, the kubeconfig has the one of the last run.
    url = urls.urlsplit(connection.load(str(place.admin_kubeconfig)).server)
    listen = chosen.listen if chosen.listen.port else addresses.Address(url.hostname or "", url.port or 443)
    async with init.served(place, dataclasses.replace(chosen, listen=listen), clocks.SystemClock()) as client:
        yield client


# --- show


@command.command(short_help="Show the CAs that are trusted, and which of them signs.")
@settings.directory_option(_DIRECTORY)
@output.format_option
def show(directory: str, form: str) -> None:
    """Show the CAs that are trusted: which one signs, when each ends, and how many of its certificates are in use.

    Certificates are counted in the issuance ledger, which can be read only while the control plane runs.
    """
    import asyncio

    from handfast.client import issued_certificates
    from handfast.datadir import trust_overview

    place = layout.Layout.at(directory)
    now = clocks.SystemClock().now()

    async def entries() -> Any:
        try:
            async with connecting.connected(str(place.admin_kubeconfig)) as reached:
                return await issued_certificates.entries(reached.client)
        except errors.HandfastError as error:
            output.note(f"certificates are not counted: {error.message}")
            return None

    with _locked_unless_served(place) as running:
        overview = trust_overview.of(place, asyncio.run(entries()) if running else None, now)
    if form != "text":
        output.result(output.document(_document(overview), form))
        return
    if not running:
        output.note("certificates are not counted: the control plane does not run")
    output.result(_text(overview))


def _document(overview: trust_overview.Overview) -> dict[str, Any]:
    from handfast.api import objects

    return {
        "certificateAuthorities": [
            {
                "fingerprint": one.fingerprint,
                "name": one.name,
                "notBefore": objects.timestamp(one.not_before),
                "notAfter": objects.timestamp(one.not_after),
                "signs": one.signs,
                "unexpiredCertificates": one.unexpired,
            }
            for one in overview.anchors
        ],
        "serviceAccountKeys": [{"keyID": key, "signs": signs} for key, signs in overview.keys],
        "rotations": [_state(state) for state in overview.rotations],
    }


def _state(state: trust_rotation.State) -> dict[str, Any]:
    return {
        "what": str(state.target),
        "next": str(state.next),
        "staying": state.staying,
        "leaving": state.leaving,
        "undone": state.undoing,
    }


def _text(overview: trust_overview.Overview) -> str:
    from handfast.api import objects

    rows = [
        (
            one.fingerprint[:16],
            one.name,
            objects.timestamp(one.not_after),
            "yes" if one.signs else "no",
            "unknown" if one.unexpired is None else str(one.unexpired),
        )
        for one in overview.anchors
    ]
    parts = [
        tables.table(
            ("CA", "NAME", "UNTIL", "SIGNS", "UNEXPIRED CERTIFICATES"), rows, minor=("NAME", "UNEXPIRED CERTIFICATES")
        )
    ]
    keys = [(key[:16], "yes" if signs else "no") for key, signs in overview.keys]
    parts.append(tables.table(("SERVICE ACCOUNT KEY", "SIGNS"), keys))
    for state in overview.rotations:
        way = "being undone" if state.undoing else "under way"
        parts.append(
            f"A rotation of the {_named(state.target)} is {way}; next is {state.next}: {_about(state.target, state.next)}"
        )
    return "\n\n".join(parts)


def _named(target: str) -> str:
    return "CA" if target == "ca" else "service account key"


def _about(target: str, step: str) -> str:
    return _ABOUT[target][step]


# --- rotate


@command.command(short_help="Replace the CA, or the key of service account tokens, one step at a time.")
@settings.directory_option(_DIRECTORY)
@settings.config_option
@click.option("--service-account-key", "accounts", is_flag=True, help="Replace the key of service account tokens.")
@click.option("--all", "everything", is_flag=True, help="Do all steps, until one has to wait.")
@click.option("--undo", is_flag=True, help="Go back to the old one; possible until the last step begins.")
@click.option(
    "--unsafe-skip-wait",
    is_flag=True,
    help="Do not wait until clients know the new one, or have renewed; they may be locked out.",
)
@output.format_option
def rotate(directory: str, config_file: str | None, form: str, **flags: bool) -> None:
    """Replace the CA, or the key of service account tokens, one step at a time.

    Each call does one step, and says which one is next and what it waits for. The steps are: add the new one, publish
    it, switch to signing with it, reissue the control plane's own certificates, retire the old one. No client is refused
    meanwhile. A step that was interrupted is done again by the next call.
    """
    import asyncio

    place = layout.Layout.at(directory)
    chosen = settings.load(place, {}, config_file).configuration
    with _locked_unless_served(place) as running:
        asyncio.run(_rotate(place, chosen, flags, form, running=running))


async def _rotate(
    place: layout.Layout, chosen: config.Configuration, flags: Mapping[str, bool], form: str, *, running: bool
) -> None:
    from handfast.datadir.rotation import sequence, steps
    from handfast.rules import trust_rotation

    target = trust_rotation.Target.TOKEN_KEY if flags["accounts"] else trust_rotation.Target.CA
    control_plane = steps.ControlPlane(
        reach=lambda: _reach(place, chosen, running=running),
        running=running,
        clock=clocks.SystemClock(),
        max_token_seconds=chosen.service_account_max_token_seconds,
    )
    rotation = sequence.Rotation(place, target, control_plane)
    skip = flags["unsafe_skip_wait"]
    reports: list[trust_rotation.Report] = []
    with rotation.alone():
        while True:
            first = not reports
            report = await (rotation.undo() if flags["undo"] and first else rotation.advance(skip_waits=skip))
            reports.append(report)
            if form == "text":
                output.result(rotation_report.text(report, _ABOUT[target]))
            if not flags["everything"] or report.next is None or (report.waits and not skip):
                break
    if form != "text":
        output.result(output.document(rotation_report.document(target, reports), form))
