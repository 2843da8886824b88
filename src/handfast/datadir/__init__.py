# SPDX-License-Identifier: Apache-2.0
"""The data directory of a control plane: what is in it, and keeping it whole.

Holds: Keys, certificates, kubeconfigs, addresses, and their renewal.
Imports: api, bootstrap, datadir.rotation, errors, pki, rules, runtime.
Never: It serves nothing and knows no settings: those come as arguments.
Start: `layout.py`, then `preparation.py`.
"""
