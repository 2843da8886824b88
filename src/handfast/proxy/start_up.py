# SPDX-License-Identifier: Apache-2.0
"""What the start-up of a proxy has made, read from its files once: name, key, request and first anchors. It writes none of them: `store_directory` does.

1. The key is for its owner's eyes, and can be read. The request is for that key, and for the one name [WrongRequestFile].
2. The anchors can be used, by the rules of the identity service. They are the first ones: who is believed later, `trust` says.

| who | holding | tries | stopped by | shown in tests/unit/proxy/test_start_up.py |
|---|---|---|---|---|
| another user of the machine | a key file that he may read | know the key | 1 | test_a_key_that_others_may_read_is_refused |
| who may write to the directory | another's request | have the workload ask for another name | 1 | test_a_request_for_another_name_or_key_is_refused |
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass, field
from typing import Final

from handfast import errors
from handfast.pki import bundles, keys, names, pem, requests
from handfast.proxy import store_directory
from handfast.rules.mesh import issuer, proxy_environment
from handfast.runtime import files

_FILE_LIMIT: Final = 4 << 20


class WrongFile(errors.Refused):
    """A request that is not for the name, or not for the key (1)."""

    reason = "WrongRequestFile"


@dataclass(frozen=True, slots=True)
class Material:
    """What the start-up made, read once."""

    name: str
    key: keys.PrivateKey
    csr: bytes = field(repr=False)
    anchors: bundles.TrustBundle = field(repr=False)
    token_file: pathlib.Path

    def request(self, key: keys.PrivateKey) -> bytes:
        """The request for a key: for that of the start-up, the one that was made with it."""
        return self.csr if key is self.key else _request(self.name, key)

    @property
    def subject(self) -> names.Subject:
        return names.Subject()

    @property
    def sans(self) -> names.Sans:
        return names.make_sans(dns=[self.name])


def load(paths: proxy_environment.ProxyFiles) -> Material:
    """Name, key, request and anchors, if they belong together (1, 2)."""
    with store_directory.naming(proxy_environment.KEY_FILE):
        key = keys.private_from_der(files.read_private(pathlib.Path(paths.key_file), limit=_FILE_LIMIT))
    with store_directory.naming(proxy_environment.CSR_FILE):
        csr = files.read(pathlib.Path(paths.csr_file), limit=_FILE_LIMIT)
        _require_own(requests.parse_der(csr), paths.name, key)
    # 2. as the identity service reads them
    with store_directory.naming(proxy_environment.ANCHORS_FILE):
        anchors = issuer.read_anchors(files.read(pathlib.Path(paths.anchors_file), limit=_FILE_LIMIT))
    return Material(paths.name, key, csr, anchors, pathlib.Path(paths.token_file))


def _request(name: str, key: keys.PrivateKey) -> bytes:
    built = requests.build(names.Subject(), names.make_sans(dns=[name]), key)
    return pem.one(built, pem.CERTIFICATE_REQUEST)


def _require_own(request: requests.Request, name: str, key: keys.PrivateKey) -> None:
    # 1. for the one name, and by the key
    if request.sans.texts() != [f"DNS:{name}"]:
        raise WrongFile(f"the request is not for {name} alone", hint="start again with: handfast mesh proxy init")
    if request.public_key.spki != key.public.spki:
        raise WrongFile("the request is for another key", hint="start again with: handfast mesh proxy init")
