# SPDX-License-Identifier: Apache-2.0
"""Keys and certificates: making, reading, verifying, sealing.

Holds: X.509, JWT, PEM, pins, the DER template of the signer. The only room that touches the cryptography library.
Imports: errors.
Never: It reads no file and keeps no time: instants and octets are arguments.
Start: `chains.py` for what is believed, `authority.py` for what is signed.
"""
