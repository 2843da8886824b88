# SPDX-License-Identifier: Apache-2.0
"""The objects of the benchmark, and a store filled with them before the server starts.

Values are written by the server's own store engine in its own envelope, only in larger transactions, so that what the
server finds is what it would have written. It does not measure anything.
"""

from __future__ import annotations

import pathlib
import uuid

import msgspec

from handfast.api import kinds, objects
from handfast.apiserver import envelope
from handfast.assembly import apiserver, datadir, endpoints, layout
from handfast.pki import seal
from handfast.runtime import clock
from handfast.store import sqlite_file, sqlite_writer

NAMESPACE = "default"
COLLECTION = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_BATCH = 5000
# With its metadata, an object of 2.8 kB as served.
_DATA = {f"setting-{number}": f"{number:x}" * 244 for number in range(10)}


def document(name: str, revision: int = 0) -> objects.Document:
    """A ConfigMap as a client sends it; all have the same size."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {**_DATA, "revision": f"{revision:08d}"},
    }


def body(name: str, revision: int = 0) -> bytes:
    return msgspec.json.encode(document(name, revision))


def name(number: int, objects_: int) -> str:
    """The name of one of the preloaded objects."""
    return f"object-{number * 1_000_000 // objects_:06d}"


def between(number: int, total: int) -> str:
    """A name that sorts somewhere among the preloaded ones, evenly spread."""
    return f"object-{number * 1_000_000 // total:06d}-new"


def fill(directory: pathlib.Path, count: int) -> None:
    """Make a data directory whose store holds `count` ConfigMaps."""
    place = layout.Layout.at(directory)
    now = clock.SystemClock().now()
    datadir.prepare(place, server=endpoints.Address("127.0.0.1", 6443), now=now)
    kind = kinds.Table(kinds.builtin()).find("", "v1", "configmaps")
    if kind is None:
        raise LookupError("no kind configmaps")
    envelopes = envelope.Envelopes(seal.Sealer.from_text(place.encryption_key.read_text()), apiserver.SEALED)
    file = sqlite_file.OpenFile(str(place.store("store.db")))
    try:
        for start in range(0, count, _BATCH):
            file.writing.execute("BEGIN IMMEDIATE")
            transaction = sqlite_writer.Transaction(file.writing)
            for number in range(start, min(start + _BATCH, count)):
                made = document(name(number, count))
                made["metadata"] |= {
                    "namespace": NAMESPACE,
                    "uid": str(uuid.uuid4()),
                    "creationTimestamp": objects.timestamp(now),
                }
                key = kind.key(NAMESPACE, made["metadata"]["name"])
                payload = envelope.encode_document(made)
                transaction.create(key, envelopes.wrap(key, kind.storage_api_version, payload))
            file.writing.execute("COMMIT")
    finally:
        file.close()
