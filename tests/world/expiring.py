# SPDX-License-Identifier: Apache-2.0
"""Has the certificates of a data directory be old, as if it had not been started for years. It tests nothing.

`python -m tests.world.expiring ca YEARS DIRECTORY` issues the CA's certificate for its key as it was so many years ago, and
`… own YEARS DIRECTORY` what the control plane shows and logs in with. The CA of ten years is over after eleven, the others after two.
"""

from __future__ import annotations

import datetime as dt
import sys

from handfast.datadir import layout, own_certificates, preparation
from handfast.pki import authority, names
from handfast.runtime import clock as clocks


def main(what: str, years: str, directory: str) -> None:
    place = layout.Layout.at(directory)
    then = clocks.SystemClock().now() - dt.timedelta(days=365 * int(years))
    if what == "ca":
        key = own_certificates.private_key(place.ca_key)
        place.ca_certificate.write_bytes(
            authority.self_signed_ca(names.Subject(common_name=preparation.CA_NAME), key, then).pem
        )
    else:
        # What is not in force at that instant is issued as of then: everything.
        own_certificates.reissue(own_certificates.Work(place=place, now=then), preparation.read_trust(place))


if __name__ == "__main__":
    main(*sys.argv[1:])
