# SPDX-License-Identifier: Apache-2.0
"""Requests in the name of somebody who is revoked. The names of the table in `apiserver/admission/revoked_requests.py` are here."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api import status
from handfast.apiserver.admission import plugin, revoked_requests
from tests.unit.apiserver import admission_world
from tests.unit.apiserver.access.test_revocations import Copied, revoked
from tests.unit.rules import csr_cases


def _csr(*conditions: str, certificate: str = "", node: str = "a") -> dict[str, Any]:
    document = csr_cases.csr(cn=f"system:node:{node}", user="system:bootstrap:abcdef")
    rows = [{"type": kind, "status": "True"} for kind in conditions]
    return {**document, "status": {"conditions": rows, **({"certificate": certificate} if certificate else {})}}


WRITES = [
    pytest.param(plugin.CREATE, "", _csr(), None, True, id="filed"),
    pytest.param(plugin.CREATE, "", _csr(node="b"), None, False, id="another's"),
    pytest.param(plugin.UPDATE, "approval", _csr("Approved"), _csr(), True, id="approved"),
    pytest.param(plugin.UPDATE, "approval", _csr("Denied"), _csr(), False, id="denied"),
    pytest.param(plugin.UPDATE, "approval", _csr("Waiting"), _csr(), False, id="told to wait"),
    pytest.param(plugin.UPDATE, "approval", _csr("Approved", "x"), _csr("Approved"), False, id="approved before"),
    pytest.param(plugin.UPDATE, "status", _csr("Approved", certificate="c"), _csr("Approved"), True, id="signed"),
    pytest.param(plugin.UPDATE, "status", _csr("Approved", "Failed"), _csr("Approved"), False, id="failed"),
    pytest.param(plugin.UPDATE, "", _csr("Approved"), _csr("Approved"), False, id="labelled"),
    pytest.param(plugin.CREATE, "", {"spec": {"request": "junk"}}, None, False, id="what nobody can read"),
]


@pytest.mark.parametrize(("operation", "subresource", "document", "old", "refused"), WRITES)
async def test_no_request_in_a_revoked_name(operation, subresource, document, old, refused):
    asked = admission_world.write_of(
        operation,
        ("certificates.k8s.io", "certificatesigningrequests"),
        name="csr",
        user=admission_world.JANE,
        document=document,
        old=old,
        subresource=subresource,
    )
    for copied, wanted in ((Copied(revoked(node="a", reason="stolen")), refused), (Copied(), False)):
        chain = plugin.Chain((revoked_requests.row(copied.followed),), admission_world.World().context)
        if not wanted:
            await chain.run(asked)
            continue
        with pytest.raises(status.StatusError) as caught:
            await chain.run(asked)
        assert caught.value.code == 403
        assert caught.value.message.endswith('user "system:node:a" is refused by Revocation "x"')
        assert [cause.reason for cause in caught.value.causes] == ["Revoked"]
