# SPDX-License-Identifier: Apache-2.0
"""Whether the libraries of the extras `mesh` and `etcd` are installed, and the command that installs them. It imports none of them.

Commands ask before they import a module that needs them, so that nobody is shown a traceback. Nor lines of gRPC's own: it tells on
standard error of every handshake that fails, which the caller is told of anyway. `GRPC_VERBOSITY` in the environment is left as it is.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Final

from handfast import errors

COMMAND: Final = "pip install 'handfast[mesh]'"
ETCD_COMMAND: Final = "pip install 'handfast[etcd]'"
# What is imported, and the package that has it.
_LIBRARIES: Final = {"grpc": "grpcio", "google.protobuf": "protobuf", "envoy.service": "xds-protos"}


def require_etcd() -> None:
    """Return if an etcd can be called from here, else refuse."""
    _be_quiet()
    missing = [package for module, package in _LIBRARIES.items() if not _is_there(module) and package != "xds-protos"]
    if missing:
        raise errors.Refused(
            f"a store in etcd needs {' and '.join(missing)}, which Handfast alone does not bring",
            reason="EtcdExtraMissing",
            hint=f"install it with `{ETCD_COMMAND}`; in a checkout of the source, `pip install -e '.[etcd]'`",
        )


def require() -> None:
    """Return if gRPC can be spoken here, else refuse."""
    _be_quiet()
    missing = [package for module, package in _LIBRARIES.items() if not _is_there(module)]
    if missing:
        raise errors.Refused(
            f"the roles of the mesh need {' and '.join(missing)}, which Handfast alone does not bring",
            reason="MeshExtraMissing",
            hint=f"install it with `{COMMAND}`; in a checkout of the source, `pip install -e '.[mesh]'`",
        )


def _be_quiet() -> None:
    # It is read when gRPC is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        # Of `google.protobuf` where there is no `google`.
        return False
