# SPDX-License-Identifier: Apache-2.0
"""Where the merged client CAs go: into the ConfigMap that Handfast's API server judges by, or into a file for another one.

It decides nothing about CAs: `rules.machines.client_cas` does. It reads no source.

1. A write is compared and swapped: the ConfigMap by its version, the file by a rename. Copies of this that run at once agree.
2. The ConfigMap's `client-ca-file` and its record are left alone while one of them cannot be read. The CAs of bootstrap
   credentials, in their own key, are kept right all the same.
3. A certificate that was put there by hand and cannot be used is left out of what is written: it counts nowhere, and the
   API server would refuse the whole.
4. The ConfigMap is written only where Handfast's API server is: another one publishes it and does not read it.
5. The file is never made, and never empty. Whoever starts this puts the CAs of the API server there first, or everybody is locked
   out at its next start. The record is a comment in it. A kube-apiserver knows no limits: there, a bootstrap CA
   may sign for anyone.
"""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from handfast import errors
from handfast.api import objects, resources
from handfast.client import api
from handfast.controllers import immutable
from handfast.pki import bundles, certificates, pem
from handfast.rules import client_ca_bundle
from handfast.rules.machines import client_ca_sources, client_ca_warnings, client_cas
from handfast.runtime import files, tls

UNREADABLE: Final = "ClientCABundleUnreadable"
_FILE_BYTES: Final = 4 << 20
_FILE_MODE: Final = 0o644
_COMMENT: Final = f"# {client_ca_bundle.SOURCES_KEY}: "


class Settled(msgspec.Struct, frozen=True):
    """What was done: the certificates that may sign for anyone now, what came and went, and what could not be done."""

    unscoped: Sequence[bytes]
    added: Sequence[certificates.Certificate] = ()
    removed: Sequence[str] = ()
    kept: Sequence[str] = ()
    trouble: str = ""
    # The ConfigMap, for Events about it.
    config_map: objects.Document | None = None


class Target(Protocol):
    """A bundle that is kept equal to what its sources give."""

    # Seconds after which it is looked at again, because nobody tells of its changes.
    look_again: float | None

    async def settle(self, contents: client_ca_warnings.Contents, now: datetime.datetime) -> Settled | None:
        """Bring it up to date; None if it is not there."""
        ...


class ConfigMapTarget:
    """The ConfigMap of Handfast's API server."""

    look_again: float | None = None

    def __init__(self, client: api.Client, own: frozenset[str], frozen: immutable.Immutable) -> None:
        self._client = client
        self._own = own
        self._immutable = frozen

    async def settle(self, contents: client_ca_warnings.Contents, now: datetime.datetime) -> Settled | None:
        config_map = await self._find(client_ca_bundle.NAME)
        if config_map is None:
            # The API server makes it, and its watch tells.
            return None
        data = dict(config_map.get("data") or {})
        settled, wanted = _merged(config_map, contents, now, self._own)
        scoped = _current(contents, client_ca_sources.BOOTSTRAP, now)
        before = _fingerprints_of(config_map, client_ca_bundle.SCOPED_KEY)
        wanted |= {client_ca_bundle.SCOPED_KEY: pem.certificates_to_pem([each.der for each in scoped]).decode()}
        wanted = {key: text for key, text in {**data, **wanted}.items() if text or key != client_ca_bundle.SCOPED_KEY}
        if wanted == data or await self._immutable.stops(config_map):
            return _with(settled, config_map)
        await self._require_ours()
        # 1. by its version
        config_map["data"] = wanted
        written = await self._client.update(resources.CONFIG_MAPS, config_map)
        now_in = {each.fingerprint for each in scoped}
        return _with(
            settled,
            written,
            [each for each in scoped if each.fingerprint not in before],
            [one for one in before if one not in now_in],
        )

    async def _find(self, name: str) -> objects.Document | None:
        return await self._client.find(resources.CONFIG_MAPS, name, namespace=client_ca_bundle.NAMESPACE)

    async def _require_ours(self) -> None:
        # 4. only Handfast's API server reads it
        if await self._find(client_ca_bundle.HISTORY) is None:
            raise errors.Refused(
                f"this API server publishes ConfigMap {client_ca_bundle.NAMESPACE}/{client_ca_bundle.NAME} and does not read it",
                reason="AnotherAPIServer",
                hint="name the file that it reads with --client-ca-file-out",
            )


class FileTarget:
    """The file that a kube-apiserver reads client CAs from."""

    # Who edits it by hand is seen so late.
    look_again: float | None = 60.0

    def __init__(self, path: pathlib.Path, own: frozenset[str]) -> None:
        self._path = path
        self._own = own

    async def settle(self, contents: client_ca_warnings.Contents, now: datetime.datetime) -> Settled | None:
        # 5. never made
        with files.otherwise("copy the CA file of the API server there first: this adds to it, and never makes it"):
            text = files.read(self._path, limit=_FILE_BYTES).decode("utf-8", "replace")
        record = _record_of(text)
        # Whatever is there by hand stays, also what only that API server can read.
        ders = pem.certificates_from_pem(text.encode())
        sources = {client_ca_sources.key(place): content.certificates for place, content in contents.items()}
        merged = client_cas.merge(ders, record.certificates, sources, now, self._own)
        wanted = client_ca_bundle.Record(merged.given_by)
        if merged.ders != tuple(ders) or wanted.certificates != record.certificates:
            body = pem.certificates_to_pem(merged.ders)
            # 1. by a rename; 5. never empty, since what is there by hand stays
            files.write_atomically(self._path, f"{_COMMENT}{wanted.text()}\n".encode() + body, mode=_FILE_MODE)
        return Settled(_unscoped(merged, record), merged.added, merged.removed, merged.kept)


def _unscoped(merged: client_cas.Merged, record: client_ca_bundle.Record) -> list[bytes]:
    """Of a file: what was not given by bootstrap ConfigMaps alone."""
    bootstrap = {client_ca_sources.key(place) for place in client_ca_sources.BOOTSTRAP}
    given_by = {**record.certificates, **merged.given_by}
    scoped = {one for one, sources in given_by.items() if set(sources) <= bootstrap}
    return [der for der in merged.ders if certificates.fingerprint(der) not in scoped]


def _merged(
    config_map: objects.Document, contents: client_ca_warnings.Contents, now: datetime.datetime, own: frozenset[str]
) -> tuple[Settled, dict[str, str]]:
    """What became of `client-ca-file`, and the data that say so."""
    # 2. left alone while it cannot be read
    try:
        record = client_ca_bundle.record(config_map)
        ders = _usable(client_ca_bundle.certificates(config_map, client_ca_bundle.KEY))
    except errors.Refused as refused:
        return Settled((), trouble=f"its client CAs are left as they are: {refused.message}"), {}
    sources = {client_ca_sources.key(place): contents[place].certificates for place in client_ca_sources.UNSCOPED}
    merged = client_cas.merge(ders, record.certificates, sources, now, own)
    condition = client_ca_warnings.condition(contents, record.conditions, now)
    data = {client_ca_bundle.SOURCES_KEY: client_ca_bundle.Record(merged.given_by, (condition,)).text()}
    if merged.ders != tuple(ders):
        data[client_ca_bundle.KEY] = pem.certificates_to_pem(merged.ders).decode()
    return Settled(merged.ders, merged.added, merged.removed, merged.kept), data


def _usable(ders: Sequence[bytes]) -> list[bytes]:
    # 3. what cannot be used counts nowhere
    bundle, _ = bundles.TrustBundle.readable(ders)
    good = set(bundle.ders) - set(tls.useless(bundle.ders))
    return [der for der in ders if der in good]


def _current(
    contents: client_ca_warnings.Contents, places: Sequence[tuple[str, str]], now: datetime.datetime
) -> list[certificates.Certificate]:
    """What these sources give now, each certificate once."""
    every = [each for place in places for each in client_cas.current(contents[place].certificates, now)]
    return list({each.fingerprint: each for each in every}.values())


def _fingerprints_of(config_map: objects.Document, key: str) -> list[str]:
    try:
        return [certificates.fingerprint(der) for der in client_ca_bundle.certificates(config_map, key)]
    except errors.Refused:
        return []


def _record_of(text: str) -> client_ca_bundle.Record:
    lines = [line.removeprefix(_COMMENT) for line in text.splitlines() if line.startswith(_COMMENT)]
    return client_ca_bundle.parse_record(lines[0]) if lines else client_ca_bundle.Record()


def _with(
    settled: Settled,
    config_map: Mapping[str, object],
    added: Sequence[certificates.Certificate] = (),
    removed: Sequence[str] = (),
) -> Settled:
    return Settled(
        settled.unscoped,
        (*settled.added, *added),
        (*settled.removed, *removed),
        settled.kept,
        settled.trouble,
        dict(config_map),
    )
