# SPDX-License-Identifier: Apache-2.0
"""Lets `python -m handfast` be the `handfast` command. It does nothing else."""

from handfast.cli import main

if __name__ == "__main__":
    main.main()
