# SPDX-License-Identifier: Apache-2.0
"""The command for one worker's credential: what it prints. What it does is shown on a real server, in the scenarios."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.cli import machine_credential_worker, output

FACTS = {
    "kubeconfig": "/out/kubeconfig-w1",
    "expires": "2031-01-01T00:00:00Z",
    "namespace": "openshift-machine-config-operator",
    "secret": "node-bootstrapper-w1",
}


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []

    async def create(*arguments: Any, **more: Any) -> dict[str, Any]:
        calls.append((*arguments, more))
        return FACTS

    monkeypatch.setattr(machine_credential_worker, "_create", create)
    return calls


def test_it_says_how_to_revoke_that_one(asked_for: list[Any], capsys: pytest.CaptureFixture[str]):
    machine_credential_worker.create(kubeconfig="k", machine="w1", out="/out", form="text")
    printed = capsys.readouterr()
    assert "kubectl --namespace openshift-machine-config-operator delete secret/node-bootstrapper-w1" in printed.out
    assert "created /out/kubeconfig-w1 (0600)" in printed.err
    assert asked_for[0][3:] == (365 * 86400, {"replace": False})


def test_it_prints_a_document(asked_for: list[Any], capsys: pytest.CaptureFixture[str]):
    machine_credential_worker.create(kubeconfig="k", machine="w1", out="/out", ttl="1h", form="json")
    assert '"secret": "node-bootstrapper-w1"' in capsys.readouterr().out
    assert asked_for[0][3] == 3600


@pytest.mark.parametrize("ttl", ["5m", "soon", "9999d"])
def test_a_lifetime_that_no_token_has_is_refused(ttl: str, asked_for: list[Any]):
    with pytest.raises(output.Usage, match="--ttl"):
        machine_credential_worker.create(kubeconfig="k", machine="w1", out="/out", ttl=ttl, form="text")
    assert asked_for == []
