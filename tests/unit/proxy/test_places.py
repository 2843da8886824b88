# SPDX-License-Identifier: Apache-2.0
"""Ports that are taken."""

import socket

import pytest

from handfast import errors
from handfast.proxy import places
from handfast.runtime import addresses


@pytest.mark.parametrize("option", [places.INBOUND, places.OUTBOUND, places.REDIRECTED])
def test_a_port_that_is_taken_is_refused_with_what_to_do(option):
    with socket.socket() as taken:
        # As another Envoy would have it.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = addresses.Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(errors.Refused, match="another process has this port") as refused:
            places.require_free(address, option)
    assert refused.value.reason == "AddressInUse"
    assert refused.value.hint is not None
    assert "port 0" not in refused.value.hint
    places.require_free(address, option)
