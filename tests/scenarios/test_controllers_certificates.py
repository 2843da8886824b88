# SPDX-License-Identifier: Apache-2.0
"""Certificates for nodes on a real server, with real watches, as the credential of the controllers.

Proves that nodes get what they may have and the others are told why not, that two copies without a lock do not disturb
one another, that every certificate is in the ledger, what each certificate costs in calls, and that requests go in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import pathlib
from typing import Any
from urllib import parse as urls

import pytest

from handfast.api import resources, signer_names
from handfast.client import requests as requesting
from handfast.controllers.certificates import approver, cleaner, signer
from handfast.pki import authority, keys, names
from handfast.rules.certificates import admission, wishes
from handfast.rules.ledger import entries as ledger_entries
from handfast.rules.ledger import segments as ledger_segments
from handfast.rules.ledger import verification
from handfast.rules.tokens import maker
from tests.scenarios import callers, controlled
from tests.scenarios import certified as c

pytestmark = [pytest.mark.slow, pytest.mark.measured]
EXTRA = urls.quote(maker.EXTRA, safe="")
SELF = "Auto approving self kubelet client certificate after SubjectAccessReview."
JOIN = "Auto approving kubelet client certificate after SubjectAccessReview."
SERVE = "Auto approving self kubelet serving certificate after SubjectAccessReview."


async def test_a_node_joins_and_renews(tmp_path: pathlib.Path) -> None:
    async with c.told(tmp_path) as story, c.running(story.world):
        await callers.bind(story.world, "system:node-bootstrapper", "Group", "system:bootstrappers")
        await story.bind("nodeclient", c.JOINERS, "system:bootstrappers")
        await story.bind("selfnodeclient", "system:nodes")
        key = keys.generate()
        asked = c.request(key=key, expirationSeconds=3600)
        name = asked["metadata"]["name"]
        await story.ask(asked, story.joiner())
        issued = await story.issued(name)
        assert (await story.conditions(name)) == {"Approved": ("AutoApproved", JOIN)}
        assert issued.public_key.spki == key.public.spki
        assert (issued.subject.common_name, issued.subject.organizations) == ("system:node:n1", ("system:nodes",))
        assert (issued.usages, bool(issued.sans), issued.is_ca) == (frozenset(c.CLIENT_USAGES), False, False)
        # An hour is short: the five minutes of back-dating come on top.
        assert issued.not_after - issued.not_before == datetime.timedelta(minutes=65)
        renewal = c.request()
        await story.ask(renewal, story.node("n1"))
        await story.issued(renewal["metadata"]["name"])
        assert (await story.conditions(renewal["metadata"]["name"])) == {"Approved": ("AutoApproved", SELF)}
        entries = [ledger_entries.decode_stored(line) for line in await story.ledger()]
        # Without a lock both copies may sign: then both certificates are in the ledger, and one of them was handed out.
        assert list(dict.fromkeys((entry.requester, entry.rule) for entry in entries)) == [
            ("joiner", "NodeJoin"),
            ("system:node:n1", "NodeRenewal"),
        ]
        # Who made a token is on record when the token is gone; what somebody says who acts as another is not.
        bearer = callers.bearer(await callers.bootstrap_token(story.world))
        acting = {"Impersonate-User": "joiner", "Impersonate-Group": c.JOINERS, f"Impersonate-Extra-{EXTRA}": "eve"}
        for node, headers in (("n2", bearer), ("n3", acting)):
            context = story.world.anonymous_context() if headers is bearer else None
            document = c.request(node)
            answer = await story.world.request("POST", c.PATH, document, headers=headers, context=context)
            assert answer.status == 201, answer.body
            await story.issued(document["metadata"]["name"])
        token = await story.find(resources.SECRETS, "bootstrap-token-foobar", "kube-system")
        await story.client.delete(resources.SECRETS, "bootstrap-token-foobar", namespace="kube-system")
        made = [ledger_entries.decode_stored(line) for line in await story.ledger()]
        assert {(entry.names[0], entry.token_maker) for entry in made} == {
            ("CN=system:node:n1", ""),
            ("CN=system:node:n2", maker.of(token)),
            ("CN=system:node:n3", ""),
        }
        assert maker.of(token)
        (entry,) = [entry for entry in entries if entry.certificate == issued.fingerprint]
        assert (entry.requester, entry.serial) == ("joiner", issued.serial)
        assert entry.key_fingerprint == key.public.fingerprint


async def test_what_waits_is_told_why_and_goes_on_when_it_may(tmp_path: pathlib.Path) -> None:
    async with c.told(tmp_path) as story, c.running(story.world):
        refused, masters = c.request("n1", name="refused"), c.request(name="masters", organizations=["system:masters"])
        for document in (refused, masters, c.request(name="Odd_Name", common_name="mike")):
            await story.ask(document, story.joiner())

        async def all_told() -> bool:
            return all([await story.told(name) for name in ("refused", "masters", "Odd_Name")])

        await story.eventually(all_told, "reasons told")
        ((reason, message, _),) = await story.told("refused")
        assert reason == "NotPermitted"
        assert "create certificatesigningrequests/nodeclient" in message
        assert f"for instance by the ClusterRole {c.ROLE}:nodeclient" in message
        ((reason, message, _),) = await story.told("masters")
        assert (reason, "organization: [system:masters] is to be [system:nodes]" in message) == ("NotRecognised", True)
        ((reason, message, _),) = await story.told("Odd_Name")
        assert (reason, "'mike' is to begin with system:node:" in message) == ("NotRecognised", True)
        # Time passes, it is asked again and again, and nothing new is said.
        await story.quiet()
        assert [len(await story.told(name)) for name in ("refused", "masters", "Odd_Name")] == [1, 1, 1]
        await story.bind("nodeclient", c.JOINERS)
        await story.issued("refused")
        assert (await story.conditions("masters")) == {}


async def test_a_token_holder_renews_nobody_elses(tmp_path: pathlib.Path) -> None:
    """The recogniser for renewals compares the requester; one who may only renew cannot bring in another node."""
    async with c.told(tmp_path) as story, c.running(story.world):
        await story.bind("selfnodeclient", "system:nodes")
        answer = await story.world.request(
            "POST", c.PATH, c.request("n2", name="other"), context=story.world.context_for("system:node:n1", c.JOINERS)
        )
        assert answer.status == 201, answer.body
        await story.eventually(lambda: story.told("other"), "told")
        assert (await story.conditions("other")) == {}


async def test_serving_certificates_only_where_somebody_opted_in(tmp_path: pathlib.Path) -> None:
    sans = names.make_sans(dns=["n1.example"], ip=["192.0.2.7"])
    more: dict[str, Any] = {"signerName": signer_names.KUBELET_SERVING, "usages": list(c.SERVING_USAGES)}
    async with c.told(tmp_path) as story, c.running(story.world):
        addresses = [{"type": "InternalIP", "address": "192.0.2.7"}, {"type": "Hostname", "address": "n1.example"}]
        await story.client.create(controlled.NODES, {"metadata": {"name": "n1"}, "status": {"addresses": addresses}})
        await story.ask(c.request(name="mine", sans=sans, **more), story.node("n1"))
        await story.eventually(lambda: story.told("mine"), "told")
        ((reason, message, _),) = await story.told("mine")
        assert (reason, f"{c.ROLE}:selfnodeserver" in message) == ("NotPermitted", True)
        await story.bind("selfnodeserver", "system:nodes")
        issued = await story.issued("mine")
        assert (await story.conditions("mine")) == {"Approved": ("AutoApproved", SERVE)}
        assert (issued.sans, issued.usages) == (sans, frozenset(c.SERVING_USAGES))
        # A name that the Node does not report, until it does.
        wider = names.make_sans(dns=["n1.example", "api.example"], ip=["192.0.2.7"])
        await story.ask(c.request(name="wider", sans=wider, **more), story.node("n1"))
        await story.eventually(lambda: story.told("wider"), "told")
        ((reason, message, _),) = await story.told("wider")
        assert (reason, "[api.example] is not among the Node's addresses" in message) == ("NotAnAddressOfTheNode", True)
        node = await story.find(controlled.NODES, "n1", "")
        node["status"]["addresses"].append({"type": "ExternalDNS", "address": "api.example"})
        await story.client.update_status(controlled.NODES, node)
        assert (await story.issued("wider")).sans == wider


async def test_a_person_approves_and_the_signer_judges(tmp_path: pathlib.Path) -> None:
    async with c.told(tmp_path) as story, c.running(story.world):
        client: dict[str, Any] = {"signerName": signer_names.KUBE_APISERVER_CLIENT, "usages": ["client auth"]}
        bad = {"signerName": signer_names.KUBELET_SERVING, "usages": list(c.SERVING_USAGES)}
        foreign = {"signerName": "example.com/other", "usages": ["client auth"]}
        for name, more in (("ann", client), ("bad", bad), ("foreign", foreign), ("denied", client)):
            organizations = ["dev"] if more is client else ["system:nodes"]
            await story.ask(c.request(name=name, organizations=organizations, **more), story.joiner())
        for name in ("ann", "bad", "foreign", "denied"):
            found = await story.csr(name)
            kind = "Denied" if name == "denied" else "Approved"
            found["status"] = {"conditions": [{"type": kind, "status": "True", "reason": "ByHand", "message": "m"}]}
            await story.client.update(c.CSRS, found, subresource="approval")
        assert (await story.issued("ann")).subject.organizations == ("dev",)

        async def failed() -> bool:
            return "Failed" in await story.conditions("bad")

        await story.eventually(failed, "failed")
        said = (await story.conditions("bad"))["Failed"]
        assert said == ("SignerValidationFailure", "DNS or IP subjectAltName is required")
        await story.quiet()
        for name in ("foreign", "denied", "bad"):
            assert "certificate" not in (await story.csr(name))["status"]


async def test_other_attributes_do_not_reach_a_certificate(tmp_path: pathlib.Path) -> None:
    others = (("2.5.4.11", "admins"), ("1.2.3.4", "x"))
    async with c.told(tmp_path) as story, c.running(story.world):
        client: dict[str, Any] = {"signerName": signer_names.KUBE_APISERVER_CLIENT, "usages": ["client auth"]}
        jane = c.request(name="jane", common_name="jane", organizations=["dev"], others=others, **client)
        for document in (jane, c.request(name="node", others=others)):
            await story.ask(document, story.joiner())
            found = await story.csr(document["metadata"]["name"])
            found["status"] = {
                "conditions": [{"type": "Approved", "status": "True", "reason": "ByHand", "message": "m"}]
            }
            await story.client.update(c.CSRS, found, subresource="approval")
        assert (await story.issued("jane")).subject == names.Subject(common_name="jane", organizations=("dev",))

        async def told() -> bool:
            return bool(await story.told("jane")) and "Failed" in await story.conditions("node")

        await story.eventually(told, "told and failed")
        message = "the certificate has the common name and organizations only; left out: OU, 1.2.3.4"
        assert await story.told("jane") == [("SubjectReduced", message, 1)]
        assert (await story.conditions("node"))["Failed"] == (
            "SignerValidationFailure",
            "subject has other attributes than common name and organization: OU, 1.2.3.4",
        )
        assert '"names":["CN=jane","O=dev"]' in "".join(await story.ledger())


async def test_two_copies_without_a_lock(tmp_path: pathlib.Path) -> None:
    """Each request is approved once and gets one certificate; each certificate that was given out is in the ledger."""
    async with c.told(tmp_path) as story, contextlib.AsyncExitStack() as stack:
        await story.bind("nodeclient", c.JOINERS)
        for _ in range(2):
            await stack.enter_async_context(c.running(story.world, copies=1))
        context = story.joiner()
        found = [c.request(f"n{number}") for number in range(20)]
        await asyncio.gather(*(story.ask(document, context) for document in found))
        issued = [await story.issued(document["metadata"]["name"]) for document in found]
        await story.quiet()
        counted = story.calls()
        assert counted["update", "certificatesigningrequests", "approval"] == 20
        assert counted["update", "certificatesigningrequests", "status"] == 20
        # Both copies may have signed: then the ledger has two entries of one request and one key, and one of them was handed out.
        entries = [ledger_entries.decode_stored(line) for line in await story.ledger()]
        handed_out = {certificate.fingerprint for certificate in issued}
        assert sorted(entry.request for entry in entries if entry.certificate in handed_out) == sorted(
            document["metadata"]["name"] for document in found
        )
        assert len({(entry.request, entry.key_fingerprint) for entry in entries}) == 20
        segments = [ledger_segments.read(item) for item in await story.client.list(c.LOGS)]
        assert verification.verify(segments) == ()
        wanted = [admission.parse(document).subject for document in found]
        assert [certificate.subject for certificate in issued] == wanted


async def test_what_a_certificate_costs(tmp_path: pathlib.Path) -> None:
    """1 create and 1 watch by the node, 1 update each by approver and signer, 1 delete by the cleaner."""
    # What one copy spends, as there is with the lock.
    async with c.told(tmp_path) as story, c.running(story.world, copies=1) as made:
        await story.bind("nodeclient", c.JOINERS)

        async def ready() -> bool:
            return all(controller.ready for controller in made)

        await story.eventually(ready, "ready")
        async with controlled.connected(story.world) as client:
            before = story.calls()
            wanted = wishes.node_client("n1")
            asking = asyncio.ensure_future(
                requesting.file_and_wait(client, keys.generate(), wanted, clock=story.clock, seconds=300)
            )
            await story.world.pass_time_until(asking, 0.05)
            assert asking.result().startswith(b"-----BEGIN CERTIFICATE-----")
        await story.clock.advance(3601)

        async def gone() -> bool:
            return not await story.client.list(c.CSRS, metadata=True)

        await story.eventually(gone, "deleted")
        after = story.calls()
        spent = {key: count - before.get(key, 0) for key, count in after.items() if count != before.get(key, 0)}
        of_requests = {key: count for key, count in spent.items() if key[1] == "certificatesigningrequests"}
        of_requests.pop(("list", "certificatesigningrequests", ""))
        assert of_requests == {
            ("create", "certificatesigningrequests", ""): 1,
            ("watch", "certificatesigningrequests", ""): 1,
            ("update", "certificatesigningrequests", "approval"): 1,
            ("update", "certificatesigningrequests", "status"): 1,
            ("delete", "certificatesigningrequests", ""): 1,
        }
        assert spent["create", "subjectaccessreviews", ""] == 1
        assert spent["create", "issuancelogs", ""] == 1


async def test_requests_go_when_their_time_has_come(tmp_path: pathlib.Path) -> None:
    async with c.told(tmp_path) as story, c.running(story.world, cleaner.NAME):
        for name in ("pending", "denied", "approved", "changed"):
            await story.ask(c.request(name=name), story.joiner())
        for name, kind in (("denied", "Denied"), ("approved", "Approved")):
            found = await story.csr(name)
            stamp = found["metadata"]["creationTimestamp"]
            condition = {"type": kind, "status": "True", "reason": "r", "message": "m", "lastUpdateTime": stamp}
            found["status"] = {"conditions": [condition]}
            await story.client.update(c.CSRS, found, subresource="approval")
        await story.clock.advance(3590)
        await story.quiet()
        assert len(await story.client.list(c.CSRS)) == 4
        await story.clock.advance(15)
        await story.gone(c.CSRS, "denied", "approved", namespace="")
        assert len(await story.client.list(c.CSRS)) == 2
        # Approved a moment before its day is over: 24 hours are the most that any request gets.
        await story.clock.advance(22 * 3600 + 3000)
        found = await story.csr("changed")
        now = story.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Approved", "status": "True", "reason": "r", "message": "m", "lastUpdateTime": now}
        found["status"] = {"conditions": [condition]}
        await story.client.update(c.CSRS, found, subresource="approval")
        await story.clock.advance(600)
        await story.gone(c.CSRS, "pending", "changed", namespace="")


async def test_another_ca_counts_from_the_next_certificate_on(tmp_path: pathlib.Path) -> None:
    async with c.told(tmp_path) as story, c.running(story.world):
        await story.bind("nodeclient", c.JOINERS)
        await story.ask(c.request(name="one"), story.joiner())
        before = await story.issued("one")
        place, key = story.world.place, keys.generate(keys.Kind.P256)
        other = authority.self_signed_ca(names.Subject(common_name="other-ca"), key, story.clock.now())
        context = story.joiner()
        old_text, old_key = place.ca_certificate.read_bytes(), place.ca_key.read_bytes()
        place.ca_certificate.write_bytes(old_text + other.pem)
        await story.ask(c.request("n2", name="two"), context)
        assert (await story.issued("two")).issuer == before.issuer
        place.ca_key.write_bytes(key.to_pem())
        await story.ask(c.request("n3", name="three"), context)
        assert (await story.issued("three")).issuer == "CN=other-ca"
        # A key that belongs to none of them: the last good pair signs on.
        place.ca_key.write_bytes(keys.generate(keys.Kind.P256).to_pem())
        await story.ask(c.request("n4", name="four"), context)
        assert (await story.issued("four")).issuer == "CN=other-ca"
        place.ca_key.write_bytes(old_key)


async def test_an_expired_ca_is_no_fault_of_the_request(tmp_path: pathlib.Path) -> None:
    async with c.told(tmp_path) as story:
        place, key = story.world.place, keys.generate(keys.Kind.P256)
        await story.bind("nodeclient", c.JOINERS)
        await story.ask(c.request(name="one"), story.joiner())
        old_text, old_key = place.ca_certificate.read_bytes(), place.ca_key.read_bytes()
        long_ago = story.clock.now() - datetime.timedelta(days=30)
        expired = authority.self_signed_ca(
            names.Subject(common_name="old"), key, long_ago, ttl=datetime.timedelta(days=1)
        )
        place.ca_certificate.write_bytes(expired.pem)
        place.ca_key.write_bytes(key.to_pem())
        async with c.running(story.world, approver.NAME, signer.NAME):
            await story.eventually(lambda: story.told("one"), "told")
            ((reason, message, _),) = await story.told("one")
            assert (reason, "the signer has expired: NotAfter=" in message) == ("SignerExpired", True)
            assert set(await story.conditions("one")) == {"Approved"}
            assert await story.ledger() == []
            place.ca_certificate.write_bytes(old_text)
            place.ca_key.write_bytes(old_key)
            await story.issued("one")
