# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs of people and nodes that nobody asked: by certificates of a CA whose key lies in a data directory. It starts nothing."""

from __future__ import annotations

import datetime
import pathlib

from handfast.bootstrap import kubeconfig
from handfast.datadir import layout
from handfast.pki import authority, keys, names, pem, profiles


def of_subject(
    place: layout.Layout, server: str, subject: names.Subject, path: pathlib.Path, now: datetime.datetime
) -> pathlib.Path:
    """A file with which somebody has this subject, by a certificate of the CA of a data directory."""
    ca_pem = place.ca_certificate.read_bytes()
    ca = authority.Authority(pem.certificates_from_pem(ca_pem)[0], keys.private_from_pem(place.ca_key.read_bytes()))
    key = keys.generate()
    issued = ca.issue(key.public, subject, names.Sans(), profiles.CLIENT, now)
    path.write_text(
        kubeconfig.build(
            cluster="world",
            server=server,
            ca=ca_pem,
            user=subject.common_name,
            client_certificate=issued.pem,
            client_key=key.to_pem(),
        )
    )
    return path
