# SPDX-License-Identifier: Apache-2.0
"""What the commands of `handfast store` have in common: which store is meant, its seal keys, and progress on the way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from handfast.assembly import config, stores
from handfast.cli import output, settings
from handfast.datadir import layout
from handfast.runtime import clock as clocks
from handfast.runtime import files

if TYPE_CHECKING:
    from handfast.pki import seal
    from handfast.wire import etcd_access

DIRECTORY: Final = "./handfast-data"
_KEY_BYTES: Final = 1 << 20
# Seconds between two states of progress: on a terminal, and in a log.
_ON_TERMINAL: Final = 0.1
_IN_LOG: Final = 5.0
_F = TypeVar("_F", bound=Callable[..., Any])


def options(function: _F) -> _F:
    """Adds --dir, --config, --store, and how an etcd is reached; `choose` takes them."""
    for decorate in (
        settings.setting_options("store", *config.ETCD),
        settings.config_option,
        settings.directory_option(DIRECTORY),
    ):
        function = decorate(function)
    return function


class StoreChoice(msgspec.Struct, frozen=True):
    """A data directory, the store that belongs to it, and how an etcd is reached."""

    place: layout.Layout
    store: str
    access: etcd_access.Access


def choose(directory: str, config_file: str | None, flags: Mapping[str, Any]) -> StoreChoice:
    """The data directory, and the store that its configuration, a variable or --store names."""
    from handfast.telemetry import log

    # What goes wrong becomes an error. An engine's own lines would say it twice.
    log.configure(level="error")
    place = layout.Layout.at(directory)
    configuration = settings.load(place, flags, config_file).configuration
    return StoreChoice(place, stores.named(place, configuration.store), stores.access(configuration))


def sealer(place: layout.Layout) -> seal.Sealer | None:
    """The seal keys of a data directory, if it has any."""
    from handfast.pki import seal

    if not place.encryption_key.exists():
        return None
    return seal.Sealer.from_text(files.read_private(place.encryption_key, limit=_KEY_BYTES).decode("ascii", "replace"))


def size(count: int) -> str:
    """Octets for a person."""
    amount, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{count} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"


def objects(count: int) -> str:
    return f"{count} object" if count == 1 else f"{count} objects"


class Progress:
    """How far something has come: one line that changes on a terminal, a line now and then elsewhere. On stderr."""

    def __init__(self, doing: str, total: int | None, clock: clocks.Clock | None = None) -> None:
        self._doing = doing
        self._total = total
        self._clock = clock or clocks.SystemClock()
        self._terminal = sys.stderr.isatty()
        self._shown_at = self._clock.monotonic()
        self._lines = 0

    def __call__(self, count: int) -> None:
        now = self._clock.monotonic()
        if now - self._shown_at < (_ON_TERMINAL if self._terminal else _IN_LOG):
            return
        self._shown_at = now
        of = "" if self._total is None else f" of {self._total}"
        text = f"{self._doing}: {count}{of} objects"
        if self._terminal:
            output.live([text], instead_of=self._lines)
            self._lines = 1
        else:
            output.progress(text)

    def end(self) -> None:
        """What was shown on a terminal is no longer of interest."""
        if self._lines:
            output.live([], instead_of=self._lines)
            self._lines = 0
