# SPDX-License-Identifier: Apache-2.0
"""Bootstrap tokens and cluster-info: signing, publishing, ending.

Holds: What a newcomer reads before it has any credential.
Imports: api, bootstrap, client, controllers, errors, runtime.
Never: It approves no request.
Start: `bootstrap_signer.py`.
"""
