# SPDX-License-Identifier: Apache-2.0
"""The flags that many commands share, made from the rows of `assembly.config`, and the configuration they give.

It does not know what a setting does.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from handfast.assembly import config, mesh_settings, setting_rows, setting_values
from handfast.cli import directories
from handfast.datadir import layout
from handfast.runtime import files

_F = TypeVar("_F", bound=Callable[..., Any])

_METAVARS = {
    "listen": "HOST:PORT",
    "advertise": "HOST:PORT",
    "store": "PATH|URL",
    **dict.fromkeys(config.ETCD_FILES, "PATH"),
    "etcdUsername": "NAME",
    "adminListen": "HOST:PORT",
    **dict.fromkeys(mesh_settings.KEYS, "HOST:PORT"),
    "mesh": None,
    "console": None,
    "consoleListen": "HOST:PORT",
    "controllers": "NAME,…",
    "leaderElect": None,
    "logLevel": None,
    "watchdogSeconds": "SECONDS",
    "anonymousFrom": "NETWORKS",
    "proxyProtocolFrom": "NETWORKS",
    "serviceAccountIssuer": "URL",
    "apiAudiences": "NAME,…",
    "serviceAccountMaxTokenSeconds": "SECONDS",
    "nodeRecoveryWindow": "DURATION",
    "ledgerRetentionDays": "DAYS",
    "protectLivingNodes": None,
    "machines": None,
    "clusterSigningDuration": "DURATION",
    "joinWithin": "DURATION",
    "machineConfigListen": "HOST:PORT",
    "machineConfigAdminListen": "HOST:PORT",
    "machineConfigTrustedNetworks": "NETWORKS",
    **dict.fromkeys(config.SIGNING_FILES, "PATH"),
    "auditLogPath": "PATH",
    "auditLogMaxMib": "MIB",
    "auditLogMaxFiles": "COUNT",
    "auditLogMaxDays": "DAYS",
}
# Settings of the API server alone.
APISERVER = (
    *config.ETCD,
    "enableBootstrapTokenAuth",
    "anonymousFrom",
    "proxyProtocolFrom",
    "serviceAccountIssuer",
    "apiAudiences",
    "serviceAccountMaxTokenSeconds",
    "nodeRecoveryWindow",
    "auditLogPath",
    "auditLogMaxMib",
    "auditLogMaxFiles",
    "auditLogMaxDays",
    "unsafeLiftLimits",
)
# Settings that the machine-config server takes from `up`, beside its addresses.
MACHINE_CONFIG_SERVER = (
    *("machineConfigTrustedNetworks", "proxyProtocolFrom"),
    *("auditLogPath", "auditLogMaxMib", "auditLogMaxFiles", "auditLogMaxDays"),
)
# Names that flags had in older documents, which are still understood.
_FORMER = {"enableBootstrapTokenAuth": "--experimental-bootstrap-token-auth"}
_REPEATED = frozenset({"advertise"})


directory_option = directories.option
config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(),
    help="The configuration file.  [default: config.yaml in the data directory]",
)


def setting_options(*keys: str, defaults: Mapping[str, Any] | None = None) -> Callable[[_F], _F]:
    """Adds the flags of these settings; the command gets them together as keyword arguments named by field."""

    def decorate(function: _F) -> _F:
        for setting in reversed([row for row in config.SETTINGS if row.key in keys]):
            function = _option(setting, (defaults or {}).get(setting.key, setting.default))(function)
        return function

    return decorate


def _option(setting: setting_rows.Setting, default: Any) -> Callable[[_F], _F]:
    about = f"{setting.about[0].upper()}{setting.about[1:]}."
    shown = ", ".join(default) if isinstance(default, list) else "" if default is None else str(default).lower()
    about += f"  [${setting.variable}{f'; default: {shown}' if shown else ''}]"
    if isinstance(setting.default, bool):
        names = [f"{setting.flag}/--no-{setting.flag[2:]}"]
        if former := _FORMER.get(setting.key):
            names.append(former)
        return click.option(*names, setting.field, default=None, help=about)
    return click.option(
        setting.flag,
        setting.field,
        metavar=_METAVARS[setting.key],
        multiple=setting.key in _REPEATED,
        type=click.Choice(setting_values.LEVELS) if setting.key == "logLevel" else str,
        default=None,
        help=about + ("  May be given several times." if setting.key in _REPEATED else ""),
    )


def load(
    place: layout.Layout,
    flags: Mapping[str, Any],
    config_file: str | None,
    defaults: Mapping[str, Any] | None = None,
) -> config.Resolved:
    """The configuration from flags, environment and file. A file that was named must exist; the default one may not."""
    path = place.config if config_file is None else pathlib.Path(config_file)
    document: dict[str, Any] = {}
    if config_file is not None or path.exists():
        with files.otherwise("name another file with --config"):
            data = files.read(path, limit=config.MAX_BYTES)
        document = config.parse(data, str(path))
    return _absolute(config.resolve(_typed(flags), os.environ, document, str(path), defaults), place, str(path))


def _absolute(resolved: config.Resolved, place: layout.Layout, file: str) -> config.Resolved:
    """Makes the paths of files absolute: those of the configuration file are in the directory, others are here."""
    paths: dict[str, Any] = {}
    for key in (*config.SIGNING_FILES, *config.ETCD_FILES):
        if (value := resolved.values[key]) is not None:
            inside = resolved.origins[key] == f"{file}: {key}"
            paths[key] = str((place.root if inside else pathlib.Path.cwd()) / value)
    fields = {row.field: paths[row.key] for row in config.SETTINGS if row.key in paths}
    chosen = dataclasses.replace(resolved.configuration, **fields)
    return dataclasses.replace(resolved, configuration=chosen, values={**resolved.values, **paths})


def from_flags(flags: Mapping[str, Any]) -> config.Configuration:
    """The configuration of a supervised child: its supervisor has resolved everything and says it in flags."""
    return config.resolve(_typed(flags), {}, {}, "").configuration


def _typed(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags, where None is one that was not typed. Click has () for one that may be repeated."""
    return {name: None if value == () else value for name, value in flags.items()}
