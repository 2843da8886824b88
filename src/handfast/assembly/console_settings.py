# SPDX-License-Identifier: Apache-2.0
"""The settings of the console that `up` runs. `config` resolves them. What `handfast console` is told by itself are its flags."""

from __future__ import annotations

from typing import Final

from handfast import errors
from handfast.assembly import setting_rows, setting_values
from handfast.runtime import addresses

ROWS: Final = (
    setting_rows.Setting(
        "console",
        setting_values.boolean,
        False,
        "true or false",
        "show the control plane in a browser: pages are served on loopback, to whoever opens them with an address that works once",
    ),
    setting_rows.Setting(
        "consoleListen",
        setting_values.address,
        "127.0.0.1:8765",
        "an address of loopback, as in 127.0.0.1:8765, [::1]:8765 or localhost:0",
        "where the console listens",
    ),
)
KEYS: Final = tuple(row.key for row in ROWS)


def require_loopback(listen: addresses.Address) -> None:
    """Return if only this machine gets there: the console of `up` has no TLS of its own."""
    if not addresses.is_loopback(listen.host):
        raise errors.Refused(
            f"--console-listen {listen}: the console of `handfast up` listens on loopback only",
            reason="ConsoleNotPrivate",
            hint="reach it through `ssh -L`, or run `handfast console` with TLS and networks of its own",
        )
