# SPDX-License-Identifier: Apache-2.0
"""From where a node's first certificate was asked for: what the API server writes on the request itself.

It says which requests are stamped, and with what. Who has to come from where is `machines.proofs`'s.

1. The stamp is `spec.extra[KEY]`: the server alone fills that field in, and nobody changes the spec of a request afterwards.
2. Whatever else put a value there is dropped from every request, such as somebody who acts as another with an extra of that name.
3. Requests for the signer kubernetes.io/kube-apiserver-client-kubelet are stamped. Those of nodes, of recovering nodes and of
   bootstrap tokens are not: they are judged by other rules, and stay as Kubernetes has them.
4. Where somebody acts as another, the connection is not the other's, and nothing is stamped.
5. The stamp is the address of the connection, or of the client by the word of a balancer that the operator named. What is no
   IP address is no stamp.

| who | holding | tries | stopped by | shown in tests/scenarios/test_machine_proofs.py |
|---|---|---|---|---|
| an intruder | a bootstrap credential | an address in the request that it sends | 1 | test_what_the_client_says_of_its_address_counts_for_nothing |
| … | the right to impersonate, with extra | an address by Impersonate-Extra | 2, 4 | test_acting_as_another_stamps_nothing |
| a webhook | a patch of the request | another address | 1: stamped again after it | test_a_webhook_does_not_change_the_stamp |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from handfast import errors
from handfast.api import signer_names
from handfast.bootstrap import tokens
from handfast.pki import names
from handfast.rules import user_names

KEY: Final = "machines.handfast.dev/source-address"
# 3. who is judged by other rules
_OTHERS: Final = (user_names.NODE_PREFIX, user_names.NODE_RECOVERY_PREFIX, tokens.USER_PREFIX)


def stamped(extra: Mapping[str, Sequence[str]], signer_name: object, user: str, address: str) -> dict[str, list[str]]:
    """The extra of a new request; `address` is empty where the connection is not the author's."""
    # 2. nobody else's word
    filled = {key: list(values) for key, values in extra.items() if key != KEY}
    # 3. which requests; 4. and 5. with what
    if signer_name == signer_names.KUBELET_CLIENT and not user.startswith(_OTHERS):
        known = _canonical(address)
        filled |= {KEY: [known]} if known else {}
    return filled


def of(extra: Mapping[str, Sequence[str]]) -> str:
    """The address on a request; empty where none is stamped."""
    values = extra.get(KEY, ())
    return values[0] if len(values) == 1 else ""


def _canonical(address: str) -> str:
    """An address without the zone of a link, and as IPv4 where it is one."""
    try:
        known = names.ip_address(address.partition("%")[0])
    except errors.Refused:
        return ""
    return str(getattr(known, "ipv4_mapped", None) or known)
