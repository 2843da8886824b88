# SPDX-License-Identifier: Apache-2.0
"""The directory with a workload's key: what it is checked for before a key exists, and what is written into it.

It does not read the environment (`rules.mesh.proxy_environment` does), and never changes the files while the proxy runs.

Before a key exists (`require_ready`):

1. The token file can be read, is not empty and is not larger than a token. A directory means the file `token` in it. The token is
   dropped at once: the proxy reads it for every request.
2. The store directory is there and is a directory. It is never made here: what was not mounted would be on a disk.
3. A file as large as all of ours can be written there.
4. The directory is in memory (tmpfs or ramfs). Elsewhere is a warning, and refused on request.

Then (`write`):

5. A new key for every start. What an earlier start left is removed first, by name, and is never followed where it is a link.
6. Every file is whole before it has its name, has mode 0400, and is never readable by others.
7. Where something fails, none of the files stays, neither new nor old.

Not checked: who else may write to the directory. Kubernetes makes its volumes writable for every user of the Pod; that no other container
has the volume is the injector's to see.

| file | content |
|---|---|
| `key.der`, `key.p8` | the private key, ECDSA on P-256, PKCS#8 in DER |
| `csr.p8`, `csr.der` | the request in DER: no subject, and the name as the one DNS SAN, which is critical |
| `trust-anchors.pem` | the anchors, in PEM |

The first names are the seed's, the second those that a stock proxy reads.

| who | holding | tries | stopped by | shown in tests/unit/proxy/test_store_directory.py |
|---|---|---|---|---|
| another user of the machine | a login | read the key while it is written, or after | 6 | test_every_file_is_there_for_its_owner_only |
| … | a link in the directory, from before | have the key written, or a file emptied, somewhere else | 5 | test_a_link_is_replaced_and_not_followed |
| who has the disk later | the disk | find the key on it | 4 | test_a_directory_on_a_disk_is_refused_on_request |
| … | the volume of a start that failed | find a key that nobody watches | 7 | test_nothing_stays_when_a_write_fails |
| who stole an earlier key | the key of an earlier start | be certified with the next request | 5 | test_a_second_start_has_another_key |
"""

from __future__ import annotations

import contextlib
import pathlib
import stat
import tempfile
from collections.abc import Iterator
from typing import Final

import msgspec

from handfast import errors
from handfast.pki import keys, names, pem, requests
from handfast.rules.mesh import certify, proxy_environment
from handfast.runtime import files, mounts

KEY: Final = "key.der"
CSR: Final = "csr.p8"
ANCHORS: Final = "trust-anchors.pem"
# As a stock proxy calls the first two.
_SAME: Final = {KEY: "key.p8", CSR: "csr.der"}
NAMES: Final = (KEY, CSR, ANCHORS, *_SAME.values())
_TOKEN: Final = "token"  # noqa: S105 - the name of a file
# Keys, requests and their blocks: more than enough beside the anchors.
_ROOM: Final = 16 << 10


class NotInMemory(errors.Refused):
    """A directory that may be on a disk, where it has to be in memory (4)."""

    reason = "StoreNotInMemory"


class Written(msgspec.Struct, frozen=True):
    """The files of one start."""

    directory: pathlib.Path

    def variables(self) -> dict[str, str]:
        """How the proxy is told of them."""
        return {
            proxy_environment.KEY_FILE: str(self.directory / KEY),
            proxy_environment.CSR_FILE: str(self.directory / CSR),
            proxy_environment.ANCHORS_FILE: str(self.directory / ANCHORS),
        }

    def remove(self) -> None:
        """None of them stays (7)."""
        for name in NAMES:
            with contextlib.suppress(OSError):
                (self.directory / name).unlink(missing_ok=True)


def require_ready(environment: proxy_environment.ProxyEnvironment, *, memory: bool) -> tuple[str, ...]:
    """Warnings, where a key may be made; else refuse (1 to 4). With `memory`, the directory has to be there."""
    read_token(pathlib.Path(environment.token_file))
    directory = pathlib.Path(environment.store)
    with naming(environment.store_variable):
        _require_writable(directory, _ROOM + len(environment.anchors.to_pem()))
    # 4. in memory
    if mounts.in_memory(directory):
        return ()
    text = f"{environment.store_variable}: {directory} is not known to be in memory: the key may be written to a disk"
    if memory:
        raise NotInMemory(text, hint="use a directory of a tmpfs, as an emptyDir with medium Memory")
    return (text,)


def write(environment: proxy_environment.ProxyEnvironment) -> Written:
    """A new key, its request and the anchors, as files (5 to 7)."""
    written = Written(pathlib.Path(environment.store).absolute())
    try:
        with naming(environment.store_variable):
            # 5. nothing of an earlier start
            _clear(written.directory)
            for name, data in _contents(environment):
                # 6. whole, and the owner's
                files.write_atomically(written.directory / name, data, mode=0o400)
    except BaseException:
        # 7. nothing stays
        written.remove()
        raise
    return written


@contextlib.contextmanager
def naming(variable: str) -> Iterator[None]:
    """Refusals inside name the variable that led there."""
    try:
        yield
    except errors.HandfastError as error:
        raise type(error)(f"{variable}: {error.message}", reason=error.reason, hint=error.hint) from error


def read_token(path: pathlib.Path) -> bytes:
    """The token of the moment, in this file or in the file `token` of this directory (1)."""
    # 1. readable, and something in it
    with naming(proxy_environment.TOKEN_FILE):
        place = path / _TOKEN if _is_directory(path) else path
        token = files.read(place, limit=certify.MAX_TOKEN).strip()
        if not token:
            raise errors.Refused(
                f"cannot use {place}: it is empty", reason="EmptyToken", hint="put the token of the account there"
            )
        return token


def _contents(environment: proxy_environment.ProxyEnvironment) -> Iterator[tuple[str, bytes]]:
    key = keys.generate()
    request = requests.build(names.Subject(), names.Sans(dns=(environment.name,)), key)
    # The key last: a proxy that looks too early finds none.
    yield ANCHORS, environment.anchors.to_pem()
    for name, data in ((CSR, pem.one(request, pem.CERTIFICATE_REQUEST)), (KEY, key.to_der())):
        yield _SAME[name], data
        yield name, data


def _clear(directory: pathlib.Path) -> None:
    files.remove_leftovers(directory)
    for name in NAMES:
        path = directory / name
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise files.explain(error, "replace", path) from error


def _is_directory(path: pathlib.Path) -> bool:
    # What cannot be looked at is told by whoever reads it.
    with contextlib.suppress(OSError):
        return path.is_dir()
    return False


def _require_writable(directory: pathlib.Path, size: int) -> None:
    try:
        # 2. there already
        if not stat.S_ISDIR(directory.stat().st_mode):
            raise errors.Refused(f"cannot write to {directory}: not a directory", reason="NotADirectory")
        # 3. room for all of it
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(bytes(size))
            file.flush()
    except OSError as error:
        raise files.explain(error, "write to", directory) from error
