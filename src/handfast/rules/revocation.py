# SPDX-License-Identifier: Apache-2.0
"""Is this identity revoked: an index of revocations, asked once for every request. It reads no store.

A revocation holds from the moment it is added until it is removed, or until its `expires` has come. It refuses who

1. has the user name it names, compared whole;
2. is the node it names: the user `system:node:NAME`, whichever certificate is shown, also one issued later;
3. holds a service account's token that is bound to a Pod of that node (or to the node itself);
4. shows a certificate with the serial number it names; each CA has serial numbers of its own, so another CA's
   certificate with that number is refused, too;
5. shows a certificate of the public key it names, whichever name is on it;
6. holds a service account's token that is bound to the Pod it names. With a UID it is that one Pod; without, every Pod that
   is ever called so.

And it refuses requests for certificates that would be of no use:

7. to Kubernetes' signers, for the name or the key of whom it refuses. Who asks is told the Revocation's name, not its reason:
   that is for administrators.

A Revocation that cannot be understood in part holds in the rest; an `expires` that is no instant never comes.

Each is one look-up of exact text; several revocations may name the same, and one that has ended hides no other. Nobody
is exempt: a stolen administrator's certificate is what revocation is for. Who has locked themselves out comes back in
with another credential of `system:masters`. The control plane's own machine can always make one: where a serial number
or key was revoked, remove `admin.conf` from the data directory and start again; where the user name was, issue a
certificate with another name from the CA in that directory.

| who | holding | tries | stopped by | shown in tests/unit/rules/test_revocation.py |
|---|---|---|---|---|
| who took over a node | the kubelet's certificate | go on as the node | 2 | test_a_node_is_refused_by_its_user_name |
| who took over a node | a new certificate for the same node | come back after a new join | 2 | test_a_new_certificate_does_not_help |
| who took over a node | tokens out of its Pods | act as their service accounts | 3 | test_tokens_of_its_pods_are_refused |
| a thief of one certificate | its key | use it until it expires | 4, 5 | test_one_certificate |
| a thief of a key | a second certificate of it | show that one instead | 5 | test_every_certificate_of_a_key |
| a stolen administrator | system:masters | be above revocation | no exemption | test_administrators_are_not_exempt |
| a user | a name that begins like a revoked one | (nothing: is let in) | 1 compares whole names | test_others_are_let_in |
| who took over a Pod | the token in it | go on as its service account | 6 | test_tokens_of_one_pod_are_refused |
| the next Pod of that name | a token of its own | (nothing: is let in) | 6 compares UIDs, where it has one | test_a_pod_made_anew_is_another |
| who took over a node | a bootstrap token | a certificate in that node's name, or of its old key | 7 | test_requests_for_whom_is_revoked |
| … | the refusal | learn what is known of them | 7: no reason | test_requests_for_whom_is_revoked |
| a revoked user | an old, ended revocation of the same name | hide behind it | all are asked | test_an_ended_one_hides_no_other |
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from handfast.api import handfast_kinds, jsonpath, objects, signer_names
from handfast.rules import decision, user_names
from handfast.rules.certificates import kubelet

# The reason of every refusal, and of conditions that tell of one; the check, as explanations name it.
REVOKED: Final = "Revoked"
CHECK: Final = "revocation"
_RULE: Final = "revocation"
# 7. Names of signers of others may mean something else.
_SIGNER_PREFIX: Final = f"{signer_names.DOMAIN}/"
_NOBODY: Final = decision.NotMine("NotRevoked", "no revocation names this identity", _RULE)


class Revocation(msgspec.Struct, frozen=True, kw_only=True):
    """One revocation; what it does not name is empty. Serial number and key are kept in the form of `normal_…`, a Pod in that of `pod_text`."""

    name: str
    node: str = ""
    user: str = ""
    serial: str = ""
    key_fingerprint: str = ""
    pod: str = ""
    reason: str = ""
    expires: datetime.datetime | None = None

    def targets(self) -> Iterator[tuple[str, str]]:
        """What it is found by."""
        if self.user:
            yield "user", self.user
        if self.node:
            yield "user", user_names.node_user(self.node)
            yield "node", self.node
        if self.serial:
            yield "serial number", self.serial
        if self.key_fingerprint:
            yield "key", self.key_fingerprint
        if self.pod:
            yield "pod", self.pod


def read(document: objects.Document) -> Revocation:
    """What a Revocation says, as far as it can be understood."""
    spec = jsonpath.mapping(document, "spec")
    return Revocation(
        name=jsonpath.text(document, "metadata", "name"),
        node=jsonpath.text(spec, "node"),
        user=jsonpath.text(spec, "user"),
        serial=normal_serial(jsonpath.text(spec, "serialNumber")),
        key_fingerprint=normal_key_fingerprint(jsonpath.text(spec, "keyFingerprint")),
        pod=_pod(jsonpath.mapping(spec, "pod")),
        reason=jsonpath.text(spec, "reason") or handfast_kinds.UNSPECIFIED,
        expires=_instant(jsonpath.text(spec, "expires")),
    )


def _pod(pod: objects.Document) -> str:
    namespace, name = jsonpath.text(pod, "namespace"), jsonpath.text(pod, "name")
    return pod_text(namespace, name, jsonpath.text(pod, "uid")) if namespace and name else ""


def pod_text(namespace: str, name: str, uid: str = "") -> str:
    """A Pod as it is compared: `NAMESPACE/NAME`, and `/UID` behind it where that counts."""
    return f"{namespace}/{name}/{uid}" if uid else f"{namespace}/{name}"


def _instant(text: str) -> datetime.datetime | None:
    try:
        return objects.parse_timestamp(text)
    except ValueError:
        return None


def normal_serial(text: str) -> str:
    """A serial number in hex as it is compared: lower case, no `0x`, no colons, no leading zeros."""
    digits = text.lower().removeprefix("0x").replace(":", "")
    return digits.lstrip("0") or digits[:1]


def normal_key_fingerprint(text: str) -> str:
    """A key as it is compared: the hex of its SHA-256 in lower case, without the `sha256:` in front."""
    return text.lower().removeprefix("sha256:")


class Index:
    """Revocations by what they name."""

    __slots__ = ("_by_name", "_by_target")

    def __init__(self) -> None:
        self._by_name: dict[str, Revocation] = {}
        self._by_target: dict[tuple[str, str], dict[str, Revocation]] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Revocation]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Revocation | None:
        return self._by_name.get(name)

    def add(self, revocation: Revocation) -> None:
        """Take one in, in place of the one of the same name."""
        self.remove(revocation.name)
        self._by_name[revocation.name] = revocation
        for target in revocation.targets():
            self._by_target.setdefault(target, {})[revocation.name] = revocation

    def remove(self, name: str) -> None:
        """Forget one; it may be unknown."""
        gone = self._by_name.pop(name, None)
        # A revocation may name the same user twice, by user and by node.
        for target in set() if gone is None else set(gone.targets()):
            del self._by_target[target][name]
            if not self._by_target[target]:
                del self._by_target[target]

    def judge(
        self,
        user: str,
        serial: str,
        key_fingerprint: str,
        node_of_token: str,
        now: datetime.datetime,
        pod_of_token: str = "",
    ) -> decision.Deny | decision.NotMine:
        """Whether somebody is revoked at this instant; what they do not have is empty. The Pod has its UID (`pod_text`)."""
        if not self._by_name:
            return _NOBODY
        targets = (
            # 1. the user, and 2. the node
            ("user", user),
            # 3. the node of a token
            ("node", node_of_token),
            # 4. the serial number
            ("serial number", normal_serial(serial)),
            # 5. the key
            ("key", key_fingerprint),
            # 6. the Pod of a token, that one or whichever is called so
            ("pod", pod_of_token),
            ("pod", pod_of_token.rpartition("/")[0]),
        )
        found = self._first(targets, now)
        if found is None:
            return _NOBODY
        revocation, target = found
        sentence = f'{target[0]} "{target[1]}" is refused by Revocation "{revocation.name}": {revocation.reason}'
        return decision.Deny(REVOKED, sentence, _RULE)

    def refusing(self, targets: Iterable[tuple[str, str]], now: datetime.datetime) -> Revocation | None:
        """The first that names one of these, in the words of `Revocation.targets`, at this instant; None: none does."""
        found = self._first(targets, now)
        return None if found is None else found[0]

    def of_node(self, node: str, now: datetime.datetime, *, serial: str = "", key: str = "") -> Revocation | None:
        """The one by which a node is refused at this instant: as itself, or with its certificate, of this number and key; None: by none."""
        certificate = (("serial number", normal_serial(serial)), ("key", key))
        return self.refusing((("user", user_names.node_user(node)), *certificate), now)

    def judge_request(self, facts: kubelet.Facts, now: datetime.datetime) -> decision.Deny | decision.NotMine:
        """Whether what is asked for would be refused at this instant (7)."""
        if not self._by_name or not facts.signer_name.startswith(_SIGNER_PREFIX):
            return _NOBODY
        request = facts.request
        found = self._first((("user", request.subject.common_name), ("key", request.public_key.fingerprint)), now)
        if found is None:
            return _NOBODY
        revocation, target = found
        return decision.Deny(REVOKED, f'{target[0]} "{target[1]}" is refused by Revocation "{revocation.name}"', _RULE)

    def _first(
        self, targets: Iterable[tuple[str, str]], now: datetime.datetime
    ) -> tuple[Revocation, tuple[str, str]] | None:
        for target in targets:
            for revocation in self._by_target.get(target, {}).values():
                if revocation.expires is None or now < revocation.expires:
                    return revocation, target
        return None
