# SPDX-License-Identifier: Apache-2.0
"""The door on a real socket: TLS as it is offered, gates, deadlines, and what is said to those who speak no HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from aiohttp import web
from cryptography import x509
from tests.scenarios import wire
from tests.unit.pki.making import CLIENT, SERVER, Made, ca, leaf
from tests.world.clock import START, MovableClock

from handfast.apiserver import limits, listener, pipeline
from handfast.pki import keys
from handfast.runtime import tls

DAY = 86400


def dated(**days: float) -> dict[str, Any]:
    import datetime

    return {name: START + datetime.timedelta(days=value) for name, value in days.items()}


WEEK = dated(not_before=-7, not_after=7)
ROOT = ca("server and client CA", **WEEK)
LOCAL = [x509.DNSName("localhost"), x509.IPAddress(__import__("ipaddress").ip_address("127.0.0.1"))]
SERVING = leaf(ROOT, SERVER, subject="server", sans=LOCAL, **WEEK)


def key_pem(made: Made) -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    return cast(
        "bytes", made.key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    )
