# SPDX-License-Identifier: Apache-2.0
"""Which machine asks: the address that the server stamps, and the token that is one machine's, on a real server."""

from __future__ import annotations

import datetime
import pathlib
import stat
from collections.abc import AsyncIterator
from typing import Any

import pytest

from handfast import errors
from handfast.api import resources
from handfast.bootstrap import first_objects
from handfast.bootstrap import kubeconfig as kubeconfigs
from handfast.cli import machine_credential_worker
from handfast.pki import keys
from handfast.rules import user_names
from handfast.rules.ledger import entries as ledger_entries
from handfast.rules.machines import (
    approval,
    bootstrapper,
    inventory,
    machine_tokens,
    proofs,
    readmission,
    source_address,
)
from handfast.rules.nodes import claim
from handfast.runtime import files
from tests.scenarios import callers, certified, fleet_story, hooked, proving
from tests.scenarios import controlled as c
from tests.unit.apiserver import hooking

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet")]
ADDRESS, ELSEWHERE = "192.0.2.7", "192.0.2.66"


@pytest.fixture
async def fleet(tmp_path: pathlib.Path) -> AsyncIterator[proving.Fleet]:
    async with proving.fleet(tmp_path) as story:
        yield story


class TestStamp:
    """`spec.extra` of a request, as the server fills it in."""

    async def test_the_address_of_the_client_behind_a_balancer_is_stamped(self, fleet: proving.Fleet) -> None:
        filed = await fleet.file(certified.request("w1"), await fleet.shared_token(), ADDRESS)
        assert source_address.of(filed["spec"]["extra"]) == ADDRESS
        assert filed["spec"]["username"] == bootstrapper.USER

    async def test_what_the_client_says_of_its_address_counts_for_nothing(self, fleet: proving.Fleet) -> None:
        document = certified.request("w1", extra={source_address.KEY: [ELSEWHERE]}, username="system:admin")
        filed = await fleet.file(document, await fleet.shared_token(), ADDRESS, X_Forwarded_For=ELSEWHERE)
        assert source_address.of(filed["spec"]["extra"]) == ADDRESS
        # Nor what somebody writes later.
        filed["spec"]["extra"][source_address.KEY] = [ELSEWHERE]
        kept = await fleet.client.update(certified.CSRS, filed)
        assert source_address.of(kept["spec"]["extra"]) == ADDRESS

    async def test_a_webhook_does_not_change_the_stamp(self, fleet: proving.Fleet) -> None:
        patch = hooked.add("/spec/extra", {source_address.KEY: [ELSEWHERE]})
        async with hooked.serving(hooking.patches(patch)) as hook:
            rules = hooked.rules("certificatesigningrequests", group="certificates.k8s.io")
            await hooked.install(fleet.world, hooked.MUTATING, hooking.webhook("one", hook.config(), rules=rules))
            filed = await fleet.file(certified.request("w1"), await fleet.shared_token(), ADDRESS)
        assert hook.reviews
        assert source_address.of(filed["spec"]["extra"]) == ADDRESS

    async def test_acting_as_another_stamps_nothing(self, fleet: proving.Fleet) -> None:
        forged = {"Impersonate-Extra-machines.handfast.dev%2fsource-address": ADDRESS}
        filed = await proving.impersonating(fleet, certified.request("w1"), **forged)
        assert filed["spec"]["username"] == bootstrapper.USER
        assert source_address.KEY not in filed["spec"].get("extra", {})

    async def test_requests_of_nodes_and_of_bootstrap_tokens_stay_as_they_are(self, fleet: proving.Fleet) -> None:
        renewal = await fleet.ask(certified.request("w1"), fleet.node("w1"))
        assert source_address.KEY not in renewal["spec"]["extra"]
        token = await callers.bootstrap_token(fleet.world, **{"auth-extra-groups": first_objects.NODE_GROUP})
        filed = await fleet.file(certified.request("w2"), token, ADDRESS)
        assert source_address.KEY not in filed["spec"]["extra"]


class TestToken:
    """A token that is one machine's."""

    async def test_a_request_tells_whose_token_it_was_made_with(self, fleet: proving.Fleet) -> None:
        await fleet.known("w1")
        token = await fleet.own_token("w1")
        filed = await fleet.file(certified.request("w1"), token)
        secret = await fleet.find(c.SECRETS, "node-bootstrapper-w1", bootstrapper.NAMESPACE)
        credential = machine_tokens.read(secret)
        assert credential is not None
        assert filed["spec"]["extra"][user_names.CREDENTIAL_ID] == [credential.id]
        assert sorted(filed["spec"]["groups"]) == sorted([*bootstrapper.GROUPS, "system:authenticated"])
        assert token not in str(secret)

    async def test_deleting_the_secret_revokes_that_token_and_no_other(self, fleet: proving.Fleet) -> None:
        for name in ("w1", "w2"):
            await fleet.known(name)
        first, second = await fleet.own_token("w1"), await fleet.own_token("w2")
        await fleet.client.delete(c.SECRETS, "node-bootstrapper-w1", namespace=bootstrapper.NAMESPACE)
        for token, code in ((first, 401), (second, 201)):
            answer = await fleet.world.request(
                "POST",
                certified.PATH,
                certified.request("w1"),
                context=fleet.world.anonymous_context(),
                headers=callers.bearer(token),
            )
            assert answer.status == code, answer.body


def wanted(out: pathlib.Path, *, replace: bool) -> machine_credential_worker.Wanted:
    return machine_credential_worker.Wanted(machine="w1", out=out, seconds=3600, replace=replace, server=None)


class TestCommand:
    """`machine credentials create --kind worker --machine NAME`, as far as it is asynchronous."""

    @pytest.fixture
    def kubeconfig(self, fleet: proving.Fleet, tmp_path: pathlib.Path) -> str:
        """The administrator's, with the port that is really served."""
        text = fleet.world.place.admin_kubeconfig.read_text()
        path = tmp_path / "admin.conf"
        path.write_text(text.replace("https://127.0.0.1:6443", fleet.world.base))
        path.chmod(0o600)
        return str(path)

    async def test_the_kubeconfig_is_one_machines_and_nobody_elses_to_read(
        self, fleet: proving.Fleet, kubeconfig: str, tmp_path: pathlib.Path
    ) -> None:
        await fleet.known("w1")
        facts = await machine_credential_worker.write(kubeconfig, wanted(tmp_path / "out", replace=False))
        path = pathlib.Path(facts["kubeconfig"])
        assert (path.name, stat.S_IMODE(path.stat().st_mode)) == ("kubeconfig-w1", 0o600)
        user = kubeconfigs.parse(path.read_text()).user
        assert user is not None
        assert user.token not in str(facts)
        filed = await fleet.file(certified.request("w1"), user.token)
        assert filed["spec"]["extra"][user_names.CREDENTIAL_ID] == [facts["credentialID"]]

    async def test_a_file_that_is_there_stays_unless_it_is_to_be_replaced(
        self, fleet: proving.Fleet, kubeconfig: str, tmp_path: pathlib.Path
    ) -> None:
        await fleet.known("w1")
        out = tmp_path / "out"
        first = await machine_credential_worker.write(kubeconfig, wanted(out, replace=False))
        with pytest.raises(errors.Refused, match="is there already"):
            await machine_credential_worker.write(kubeconfig, wanted(out, replace=False))
        second = await machine_credential_worker.write(kubeconfig, wanted(out, replace=True))
        assert second["credentialID"] != first["credentialID"]

    async def test_a_file_that_cannot_be_written_leaves_no_token(
        self, fleet: proving.Fleet, kubeconfig: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await fleet.known("w1")

        def full(*_: object, **__: object) -> None:
            raise errors.Unavailable("no space left on device", reason="DiskFull")

        monkeypatch.setattr(files, "write_atomically", full)
        with pytest.raises(errors.Unavailable, match="no space"):
            await machine_credential_worker.write(kubeconfig, wanted(tmp_path / "out", replace=False))
        assert await fleet.find(c.SECRETS, "node-bootstrapper-w1", bootstrapper.NAMESPACE) is None


@pytest.fixture
async def approved(fleet: proving.Fleet) -> AsyncIterator[proving.Fleet]:
    """The same, with the machine-approver at work."""
    async with fleet_story.running(fleet):
        yield fleet


def named(name: str, node: str = "w1", key: keys.PrivateKey | None = None) -> dict[str, Any]:
    return certified.request(node, name=name, key=key)


async def matched(story: proving.Fleet, name: str) -> str:
    """What is on an approved request of its Machine; the ledger has the same."""
    await story.issued(name)
    text = (await story.conditions(name))["MatchedMachine"][1]
    rules = [ledger_entries.decode_stored(line).rule for line in await story.ledger()]
    assert f"MachineJoin: {text}" in rules
    return text


class TestSourceAddress:
    async def test_only_the_machine_itself_gets_its_name(self, approved: proving.Fleet) -> None:
        await approved.settings("sourceAddress: true")
        await approved.known("w1", ("InternalIP", ADDRESS))
        token = await approved.shared_token()
        await approved.file(named("intruder"), token, ELSEWHERE)
        assert await approved.reason("intruder") == proofs.WRONG_ADDRESS
        await proving.impersonating(approved, named("impersonated"))
        assert await approved.reason("impersonated") == proofs.NO_ADDRESS
        await approved.file(named("honest"), token, ADDRESS)
        machine = f"Machine {fleet_story.FLEET}/w1"
        assert await matched(approved, "honest") == f"{machine}, proven by its source address"
        assert await approved.conditions("intruder") == {}

    async def test_an_address_that_comes_later_counts(self, approved: proving.Fleet) -> None:
        await approved.settings("sourceAddress: true")
        machine = await approved.known("w1")
        await approved.file(named("early"), await approved.shared_token(), ADDRESS)
        assert await approved.reason("early") == proofs.WRONG_ADDRESS
        machine["status"]["addresses"].append({"type": "InternalIP", "address": ADDRESS})
        await approved.client.update_status(fleet_story.MACHINES, machine)
        await approved.issued("early")


class TestCredential:
    async def test_each_machine_joins_with_its_own_token_alone(self, approved: proving.Fleet) -> None:
        await approved.settings("credential: per-machine")
        for name in ("w1", "w2"):
            await approved.known(name)
        own, other = await approved.own_token("w1"), await approved.own_token("w2")
        await approved.ask(named("shared"), approved.bootstrapper())
        await approved.file(named("another"), other)
        assert await approved.reason("shared") == proofs.SHARED_CREDENTIAL
        assert await approved.reason("another") == proofs.OTHER_CREDENTIAL
        await approved.file(named("own"), own)
        assert (await matched(approved, "own")).endswith("w1, proven by its own credential")

    async def test_deleting_the_secret_takes_back_what_is_pending(self, approved: proving.Fleet) -> None:
        await approved.settings("{credential: per-machine, nodeClientCert: {disabled: true}}")
        await approved.known("w1")
        await approved.file(named("pending"), await approved.own_token("w1"))
        assert await approved.reason("pending") == "FlowDisabled"
        await approved.client.delete(c.SECRETS, "node-bootstrapper-w1", namespace=bootstrapper.NAMESPACE)
        await approved.settings("credential: per-machine")

        async def told() -> bool:
            return proofs.NO_CREDENTIAL in {row[0] for row in await approved.told("pending")}

        await approved.eventually(told, "the revoked credential told of")
        assert await approved.conditions("pending") == {}


READMISSION = "{credential: per-machine, readmission: true}"


class TestReadmission:
    """A node that was off for long, with its Node and its Machine still there."""

    async def shut_down(self, story: proving.Fleet, *, silent_for: float) -> str:
        """Its token; its Lease was renewed so many seconds ago."""
        await story.known("w1", node="w1")
        await story.client.create(c.NODES, {"metadata": {"name": "w1"}})
        renewed = story.clock.now() - datetime.timedelta(seconds=silent_for)
        spec = {
            "holderIdentity": "w1",
            "leaseDurationSeconds": 40,
            "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.000000Z"),
        }
        await story.client.create(
            resources.LEASES, {"metadata": {"name": "w1"}, "spec": spec}, namespace="kube-node-lease"
        )
        return await story.own_token("w1")

    async def test_a_known_silent_machine_comes_back_and_its_new_key_is_reserved(self, approved: proving.Fleet) -> None:
        token = await self.shut_down(approved, silent_for=86400.0)
        await approved.settings("credential: per-machine")
        key = keys.generate()
        await approved.file(named("back", key=key), token)
        assert await approved.reason("back") == approval.NODE_EXISTS
        await approved.settings(READMISSION)
        assert (await matched(approved, "back")).endswith("w1, readmitted by its own credential")
        machine = await approved.find(fleet_story.MACHINES, "w1", fleet_story.FLEET)
        marks = machine["metadata"]["annotations"]
        assert marks[inventory.APPROVED_KEY] == key.public.fingerprint
        assert readmission.READMITTED in marks
        assert "Readmitted" in {row[0] for row in await approved.told("back")}
        # Another key has to wait for its hour.
        await approved.file(named("again"), token)
        assert await approved.reason("again") == readmission.TOO_SOON
        await approved.clock.advance(3600)
        await approved.issued("again")

    async def test_a_node_that_runs_is_not_readmitted(self, approved: proving.Fleet) -> None:
        await approved.settings(READMISSION)
        token = await self.shut_down(approved, silent_for=1.0)
        await approved.file(named("thief"), token)
        assert await approved.reason("thief") == claim.NODE_IS_ALIVE
        assert "Approved" not in await approved.conditions("thief")

    async def test_the_shared_credential_brings_nobody_back(self, approved: proving.Fleet) -> None:
        await approved.settings(READMISSION)
        await self.shut_down(approved, silent_for=86400.0)
        await approved.ask(named("intruder"), approved.bootstrapper())
        assert await approved.reason("intruder") == proofs.SHARED_CREDENTIAL
        await approved.quiet()
        assert await approved.conditions("intruder") == {}
