"""The values of shared access signatures that every maker of them checks before signing. Pure; knows no key.

A signature with another value is signed all the same, and the service refuses each request that has it (auth 2.1, 3.1).
"""

from __future__ import annotations

import ipaddress


def is_client_addresses(text: str) -> bool:
    """Whether this is an address, or two of one kind with a hyphen between (`sip`); an address with a zone is none."""
    try:
        kinds = {ipaddress.ip_address(each).version for each in text.split("-")}
    except ValueError:
        return False
    return len(kinds) == 1 and text.count("-") <= 1 and "%" not in text
