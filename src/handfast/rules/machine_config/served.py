# SPDX-License-Identifier: Apache-2.0
"""The answer to a machine that asks for its configuration: the rendering, and the files that only the server has. It serves nothing.

1. Files are added in OpenShift's order: the kubelet's client CA, the annotations that the node starts with, the bootstrap kubeconfig, the
   MachineConfig itself, the host name where it is known, and last the MachineConfig without its Ignition configuration.
2. A file that the configuration has at the same path is replaced: a path is there once.
3. Everybody may read them, as in OpenShift, with two exceptions: the kubeconfig is a secret, and the MachineConfig has the contents of every
   file in it. From the first moment only their owner may read these two.
4. Versions before 3.3 have no kernel arguments. Those that should exist become the MachineConfig's own; those that should not are refused.
5. The answer has the version that was asked for, and so has the MachineConfig that is added last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from handfast.rules.machine_config import conversion, data_urls, host_paths, names, since

_ALL_READ: Final = 0o644
_OWNER_READS: Final = 0o600
_FIRST_PIVOT: Final = names.CURRENT.replace("currentConfig", "firstPivotConfig")
_WITH_ARGUMENTS: Final = "3.3.0"
_INDENT: Final = 4


def answer(
    document: Mapping[str, Any], kubeconfig: bytes, kubelet_ca: bytes, version: str, hostname: str = ""
) -> bytes:
    """The body: the configuration of a rendered MachineConfig, as Ignition of that version reads it."""
    # 4. kernel arguments where this version has them
    machine_config, config = _with_arguments(_plain(document), version)
    name = machine_config["metadata"]["name"]
    # 1. in OpenShift's order
    files = {
        host_paths.KUBELET_CA: kubelet_ca,
        host_paths.NODE_ANNOTATIONS: _annotations(name),
        host_paths.KUBECONFIG: kubeconfig,
        host_paths.CONTENT: msgspec.json.format(msgspec.json.encode(machine_config), indent=_INDENT),
        host_paths.HOSTNAME: f"{hostname}\n".encode() if hostname else b"",
        host_paths.ENCAPSULATED: _encapsulated(machine_config, version),
    }
    added = [_file(path, data) for path, data in files.items() if data]
    # 2. a path is there once
    storage = config.get("storage") or {}
    kept = [file for file in storage.get("files") or () if not files.get(file["path"])]
    whole = {**config, "storage": {**storage, "files": [*kept, *added]}}
    # 5. in the version that was asked for
    return msgspec.json.encode(conversion.convert(whole, version))


def _plain(document: Mapping[str, Any]) -> dict[str, Any]:
    """Without who wrote which field of it, which is no machine's business."""
    metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    return {**document, "metadata": metadata}


def _with_arguments(machine_config: dict[str, Any], version: str) -> tuple[dict[str, Any], dict[str, Any]]:
    spec = machine_config["spec"]
    config = spec["config"]
    arguments = config.get("kernelArguments") or {}
    if not arguments.get("shouldExist") or version in since.VERSIONS[since.VERSIONS.index(_WITH_ARGUMENTS) :]:
        return machine_config, config
    joined = [*(spec.get("kernelArguments") or ()), *arguments["shouldExist"]]
    left = {key: value for key, value in arguments.items() if key != "shouldExist"}
    config = {**config, "kernelArguments": left}
    return {**machine_config, "spec": {**spec, "config": config, "kernelArguments": joined}}, config


def _annotations(name: str) -> bytes:
    rows = {names.CURRENT: name, names.DESIRED: name, _FIRST_PIVOT: name, names.STATE: names.DONE}
    return msgspec.json.encode(rows, order="sorted")


def _encapsulated(machine_config: Mapping[str, Any], version: str) -> bytes:
    empty = {"ignition": {"version": version}}
    return msgspec.json.encode({**machine_config, "spec": {**machine_config["spec"], "config": empty}})


def _file(path: str, data: bytes) -> dict[str, Any]:
    return {
        "path": path,
        "overwrite": True,
        # 3. what is or may hold a secret for its owner alone
        "mode": _OWNER_READS if path in host_paths.PRIVATE else _ALL_READ,
        "contents": {"source": data_urls.encode(data)},
    }
