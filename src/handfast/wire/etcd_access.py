# SPDX-License-Identifier: Apache-2.0
"""How an etcd is reached: what a client believes, and what it shows. It opens nothing, and imports no gRPC."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Paths of files, and the name of a user. Without a CA, etcd is called in plaintext, on loopback only."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    username: str | None = None
    password_file: str | None = None
