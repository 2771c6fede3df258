"""A certificate and its key in a PFX file (PKCS #12), as the PEM file that a server reads.

Knows the two forms of files, not the server. The key stands in a directory that only this user can read, for as long as
the context lasts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tablestone.cli.option_values import BrokenOption


@contextmanager
def as_pem(pfx: Path, password: str) -> Iterator[Path]:
    """The path of a PEM file with the chain and its key. `BrokenOption` if the PFX file cannot be used."""
    text = _pem_of(pfx, password)
    with tempfile.TemporaryDirectory(prefix="tablestone-") as directory:
        path = Path(directory, "certificate.pem")
        path.touch(mode=0o600)
        path.write_bytes(text)
        yield path


def _pem_of(pfx: Path, password: str) -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - loads slowly
    from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415 - the same

    try:
        content = pfx.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BrokenOption(f"{pfx} cannot be read: {reason}.") from None
    try:
        found = pkcs12.load_pkcs12(content, password.encode("utf-8"))
    except ValueError:
        raise BrokenOption(
            f"{pfx} is no PFX file, or --pwd is not its password; a PEM file needs --key."
        ) from None
    if found.cert is None or found.key is None:
        raise BrokenOption(f"{pfx} must have a certificate and its key.")
    chain = [found.cert, *found.additional_certs]
    parts = [each.certificate.public_bytes(serialization.Encoding.PEM) for each in chain]
    parts.append(
        found.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return b"".join(parts)
