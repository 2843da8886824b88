# SPDX-License-Identifier: Apache-2.0
"""The parts of an Ignition configuration that are kept, merged and served as they are: disks, users, proxies. Nothing is applied here.

The fields are those of specification 3.5, in the order of their names. `since.py` says which of them older specifications lack.
"""

from __future__ import annotations

import msgspec

from handfast.rules.machine_config import data_urls

Texts = list[str]


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    """What every part has: fields that are not there stay away, and unknown ones are refused."""


class Timeouts(Part, frozen=True):
    """Seconds."""

    http_response_headers: int | None = None
    http_total: int | None = None


class Proxy(Part, frozen=True):
    """How the machine reaches the sources."""

    http_proxy: str | None = None
    https_proxy: str | None = None
    no_proxy: Texts | None = None


class TLS(Part, frozen=True):
    """Whom the machine trusts when it fetches."""

    certificate_authorities: list[data_urls.Source] | None = None


class Security(Part, frozen=True):
    """What the machine trusts."""

    tls: TLS | None = None


class References(Part, frozen=True):
    """Other configurations: merged with this one, or instead of it."""

    merge: list[data_urls.Source] | None = None
    replace: data_urls.Source | None = None


class Ignition(Part, frozen=True):
    """The configuration about itself."""

    version: str
    config: References | None = None
    proxy: Proxy | None = None
    security: Security | None = None
    timeouts: Timeouts | None = None


class KernelArguments(Part, frozen=True):
    """Arguments of the kernel's command line."""

    should_exist: Texts | None = None
    should_not_exist: Texts | None = None


class User(Part, frozen=True):
    """An account. Its hash is a secret of sorts, so that it is not printed."""

    name: str
    gecos: str | None = None
    groups: Texts | None = None
    home_dir: str | None = None
    no_create_home: bool | None = None
    no_log_init: bool | None = None
    no_user_group: bool | None = None
    password_hash: str | None = None
    primary_group: str | None = None
    shell: str | None = None
    should_exist: bool | None = None
    ssh_authorized_keys: Texts | None = None
    system: bool | None = None
    uid: int | None = None

    def __repr__(self) -> str:
        return f"User({self.name!r})"


class Group(Part, frozen=True):
    """A group of accounts."""

    name: str
    gid: int | None = None
    password_hash: str | None = None
    should_exist: bool | None = None
    system: bool | None = None

    def __repr__(self) -> str:
        return f"Group({self.name!r})"


class Passwd(Part, frozen=True):
    """The accounts of the machine."""

    groups: list[Group] | None = None
    users: list[User] | None = None


class Partition(Part, frozen=True):
    """A part of a disk."""

    guid: str | None = None
    label: str | None = None
    number: int = 0
    resize: bool | None = None
    should_exist: bool | None = None
    size_mib: int | None = msgspec.field(name="sizeMiB", default=None)
    start_mib: int | None = msgspec.field(name="startMiB", default=None)
    type_guid: str | None = None
    wipe_partition_entry: bool | None = None


class Disk(Part, frozen=True):
    """A disk and its partitions."""

    device: str
    partitions: list[Partition] | None = None
    wipe_table: bool | None = None


class Filesystem(Part, frozen=True):
    """What a device is formatted with."""

    device: str
    format: str | None = None
    label: str | None = None
    mount_options: Texts | None = None
    options: Texts | None = None
    path: str | None = None
    uuid: str | None = None
    wipe_filesystem: bool | None = None


class Raid(Part, frozen=True):
    """Devices that act as one."""

    name: str
    devices: Texts | None = None
    level: str | None = None
    options: Texts | None = None
    spares: int | None = None


class Tang(Part, frozen=True):
    """A server that helps to unlock."""

    advertisement: str | None = None
    thumbprint: str | None = None
    url: str = ""


class CustomPin(Part, frozen=True):
    """Another way to unlock."""

    config: str | None = None
    needs_network: bool | None = None
    pin: str | None = None


class Clevis(Part, frozen=True):
    """How a volume is unlocked."""

    custom: CustomPin | None = None
    tang: list[Tang] | None = None
    threshold: int | None = None
    tpm2: bool | None = None


class Cex(Part, frozen=True):
    """Whether a crypto card unlocks it."""

    enabled: bool | None = None


class Luks(Part, frozen=True):
    """An encrypted volume."""

    name: str
    cex: Cex | None = None
    clevis: Clevis | None = None
    device: str | None = None
    discard: bool | None = None
    key_file: data_urls.Source | None = None
    label: str | None = None
    open_options: Texts | None = None
    options: Texts | None = None
    uuid: str | None = None
    wipe_volume: bool | None = None
