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

    monkeypatch.setattr(machine_credential_worker, "write", create)
    return calls


def run(form: str = "text", **flags: Any) -> None:
    typed = {"machine": "w1", "out": "/out", "ttl": None, "replace": False, "server": None, **flags}
    machine_credential_worker.create("k", machine_credential_worker.Wanted.of(typed), form)


def test_it_says_how_to_revoke_that_one(asked_for: list[Any], capsys: pytest.CaptureFixture[str]):
    run()
    printed = capsys.readouterr()
    assert "kubectl --namespace openshift-machine-config-operator delete secret/node-bootstrapper-w1" in printed.out
    assert "created /out/kubeconfig-w1 (0600)" in printed.err
    assert (asked_for[0][1].seconds, asked_for[0][1].replace) == (365 * 86400, False)


def test_it_prints_a_document(asked_for: list[Any], capsys: pytest.CaptureFixture[str]):
    run("json", ttl="1h")
    assert '"secret": "node-bootstrapper-w1"' in capsys.readouterr().out
    assert asked_for[0][1].seconds == 3600


@pytest.mark.parametrize("ttl", ["5m", "soon", "9999d"])
def test_a_lifetime_that_no_token_has_is_refused(ttl: str, asked_for: list[Any]):
    with pytest.raises(output.Usage, match="--ttl"):
        run(ttl=ttl)
    assert asked_for == []
