# SPDX-License-Identifier: Apache-2.0
"""What earlier versions wrote is still read: stores, kubeconfigs, settings, ledgers and reports of `tests/vectors/formats`.

It does not compare what is written today with them: a newer version may write more, and must read what there is.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import pathlib
import shutil
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from handfast.assembly import config
from handfast.bootstrap import cluster_info, kubeconfig
from handfast.cli import main, output
from handfast.client import cluster_cache
from handfast.datadir import layout, preparation
from handfast.node import report
from handfast.rules import trust_rotation
from handfast.rules.ledger import entries, segments, verification
from handfast.runtime import addresses
from handfast.store import protocol
from handfast.store.etcd import engine as etcd
from handfast.store.etcd import source
from handfast.wire import etcd_access
from handfast.wire import etcd_messages as messages
from tests.world import etcds
from tests.world import world as worlds
from tests.world.clock import MovableClock

FORMATS = pathlib.Path(__file__).parents[1] / "vectors" / "formats"
REQUEST = "node-csr-G69Z67Jq7yjFRV3CUluvNmB_CnPpA6U8-IwoCh5Hwpo"
CLUSTER_ID = "d1086a5f-4e28-488f-97d2-08df0533f912"


def request_with_its_certificate(found: dict[str, Any]) -> None:
    assert found["spec"]["username"] == "system:bootstrap:7t9mp0"
    assert found["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client-kubelet"
    assert [row["type"] for row in found["status"]["conditions"]] == ["Approved"]
    assert found["status"]["certificate"]


def sealed_token(found: dict[str, Any]) -> None:
    assert found["type"] == "bootstrap.kubernetes.io/token"
    assert found["data"]["token-id"] == "N3Q5bXAw"


def published(found: dict[str, Any]) -> None:
    info = cluster_info.read(found["data"]["kubeconfig"])
    assert (info.id, info.servers) == (CLUSTER_ID, ("https://127.0.0.1:16443",))
    assert "jws-kubeconfig-7t9mp0" in found["data"]


def lease(found: dict[str, Any]) -> None:
    assert found["spec"]["holderIdentity"] == "worker-1"


def ledger_segment(found: dict[str, Any]) -> None:
    segment = segments.read(found)
    [line] = segment.entries
    entry = entries.decode_stored(line)
    assert (entry.request, entry.rule, entry.token_id) == (REQUEST, "NodeJoin", "7t9mp0")
    assert verification.verify([segment]) == ()


STORED: dict[str, Callable[[dict[str, Any]], None]] = {
    f"/apis/certificates.k8s.io/v1/certificatesigningrequests/{REQUEST}": request_with_its_certificate,
    "/api/v1/namespaces/kube-system/secrets/bootstrap-token-7t9mp0": sealed_token,
    "/api/v1/namespaces/kube-public/configmaps/cluster-info": published,
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/worker-1": lease,
    "/apis/handfast.dev/v1alpha1/issuancelogs/segment-0000000001": ledger_segment,
}


def prepared(root: pathlib.Path, clock: MovableClock) -> pathlib.Path:
    """A data directory without a store, with the key that sealed the token."""
    root.mkdir(mode=0o700)
    preparation.prepare(layout.Layout.at(root), server=addresses.Address("127.0.0.1", 6443), now=clock.now())
    shutil.copy(FORMATS / "encryption.key", root)
    (root / "encryption.key").chmod(0o600)
    return root


async def require_served(root: pathlib.Path, clock: MovableClock, store: protocol.Store | None = None) -> None:
    async with worlds.world(root, clock=clock, store=store, shared=store is not None) as world:
        for path, check in STORED.items():
            answer = await world.get(path)
            assert answer.status == 200, path
            check(answer.json())


@pytest.mark.parametrize("name", ["store.sql", "store-notes.sql"])
async def test_a_store_of_before_is_served(tmp_path: pathlib.Path, name: str) -> None:
    clock = MovableClock()
    root = prepared(tmp_path / "data", clock)
    with sqlite3.connect(root / "store.db") as database:
        database.executescript((FORMATS / name).read_text())
    database.close()
    (root / "store.db").chmod(0o600)
    await require_served(root, clock)


async def test_a_store_of_before_in_an_etcd_is_served(tmp_path: pathlib.Path) -> None:
    clock = MovableClock()
    root, place = prepared(tmp_path / "data", clock), etcds.shared().place()
    async with source.session_of(place, etcd_access.Access()) as session:
        for line in (FORMATS / "store-etcd.jsonl").read_text().splitlines():
            row = json.loads(line)
            key = place.root + row["key"].encode()
            await session.write(messages.PutRequest(key=key, value=base64.b64decode(row["value"])))
    store = await etcd.open_store(place, etcd_access.Access())
    assert (store.identity, store.epoch_offset) == ("71eb99fc2c7fd955f0ef2e5bcff8b13a", 10**9)
    await require_served(root, clock, store)


async def test_a_backup_of_before_is_restored_and_served(tmp_path: pathlib.Path) -> None:
    clock = MovableClock()
    root = prepared(tmp_path / "data", clock)
    words = ["store", "restore", str(FORMATS / "store.backup"), "--dir", str(root)]
    assert await asyncio.to_thread(output.run, main.command, words) == 0
    await require_served(root, clock)


def test_every_setting_of_before_is_understood() -> None:
    document = config.parse((FORMATS / "config.yaml").read_bytes(), "config.yaml")
    resolved = config.resolve({}, {}, document, "config.yaml")
    # Whatever has a value there is taken from the file, and no default stands for it.
    settings = {
        key: value for key, value in document.items() if key not in {"apiVersion", "kind"} and value is not None
    }
    assert {key: resolved.values[key] for key in settings} == settings
    assert {resolved.origins[key] for key in settings} == {f"config.yaml: {key}" for key in settings}
    chosen = resolved.configuration
    assert (str(chosen.listen), chosen.enable_bootstrap_token_auth) == ("127.0.0.1:6443", True)
    assert chosen.node_recovery_window == datetime.timedelta(days=30)


def test_a_joined_machine_still_finds_its_cluster() -> None:
    text = (FORMATS / "kubelet.conf").read_text()
    info = cluster_cache.known(text, FORMATS).info
    assert (info.id, info.servers) == (CLUSTER_ID, ("https://127.0.0.1:16443",))
    user = kubeconfig.parse(text).user
    assert user is not None
    assert user.client_certificate == "/var/lib/kubelet/pki/kubelet-client-current.pem"


def test_an_agents_report_of_before_is_read() -> None:
    found = report.read(FORMATS)
    assert found is not None
    written = json.loads((FORMATS / report.STATUS).read_text())
    assert {name: getattr(found, name) for name in written} == written | {"static_pods": ()}


def test_a_rotation_that_was_begun_before_goes_on() -> None:
    state = trust_rotation.decode((FORMATS / "rotation-state.json").read_bytes())
    first, second = list(trust_rotation.Step)[:2]
    assert (state.target, state.old, state.new) == (trust_rotation.Target.CA, "a" * 64, "b" * 64)
    assert (state.next, [step for step, _ in state.done]) == (second, [first])


def test_every_file_has_its_row_and_its_test() -> None:
    """One that nobody reads shows nothing."""
    files = {path.name for path in FORMATS.iterdir()} - {"README.md"}
    page, here = (FORMATS / "README.md").read_text(), pathlib.Path(__file__).read_text()
    assert {name for name in files if f"| `{name}` |" not in page} == set()
    assert {name for name in files - {report.STATUS} if f'"{name}"' not in here} == set()
