# SPDX-License-Identifier: Apache-2.0
"""The pointer configuration: the few lines that a machine starts with. They say where its configuration is, and prove who asks.

It holds a secret. Its version is the oldest that has headers, so that every Ignition of specification 3 but the first reads it.
"""

from __future__ import annotations

import base64
from typing import Any, Final

VERSION: Final = "3.1.0"
_AUTHORIZATION: Final = "Authorization"


def document(url: str, ca: bytes, secret: str = "") -> dict[str, Any]:
    """A configuration into which Ignition merges what `url` serves. `ca` is whom to trust there, `secret` what to send as a bearer token."""
    headers = [{"name": _AUTHORIZATION, "value": f"Bearer {secret}"}] if secret else []
    authority = f"data:text/plain;charset=utf-8;base64,{base64.b64encode(ca).decode()}"
    return {
        "ignition": {
            "version": VERSION,
            "config": {"merge": [{"source": url, **({"httpHeaders": headers} if headers else {})}]},
            "security": {"tls": {"certificateAuthorities": [{"source": authority}]}},
        }
    }
