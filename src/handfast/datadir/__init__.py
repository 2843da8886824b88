# SPDX-License-Identifier: Apache-2.0
"""The data directory of a control plane: what is in it, and keeping it whole.

Holds: Keys, certificates, kubeconfigs, their renewal, and who is told when they change.
Imports: api, bootstrap, datadir.rotation, errors, pki, rules, runtime, serving.
Never: It serves nothing and knows no settings: those come as arguments.
Start: `layout.py`, then `preparation.py`.
"""
