"""The admin address of a server, as users write it. Loads quickly: `tablestone health` runs every few seconds."""

from contextlib import suppress
from urllib.parse import urlsplit

from tablestone.tools.errors import TransferRefused


def admin_address(admin: str) -> tuple[str, int]:
    """The host and the port of `[HOST:]PORT`, or of a URL; `TransferRefused` for any other text."""
    text = admin if "://" in admin else f"//{admin if ':' in admin else f'127.0.0.1:{admin}'}"
    with suppress(ValueError):
        parts = urlsplit(text)
        if parts.hostname and parts.port and parts.scheme in ("", "http"):
            return parts.hostname, parts.port
    raise TransferRefused(
        f"--admin must be PORT or HOST:PORT, such as 10003 or 127.0.0.1:10003, not {admin!r}."
    )
