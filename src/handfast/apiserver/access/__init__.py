# SPDX-License-Identifier: Apache-2.0
"""Who is asking, and may they.

Holds: Authenticators, authorizers, impersonation, revocations, and what they follow in the store.
Imports: api, apiserver, apiserver.state, apiserver.strategy, bootstrap, errors, pki, rules, runtime, serving, store.
Never: It does not look at the object that is to be written: that is `admission`.
Start: `authn.py`, then `authz.py`.
"""
