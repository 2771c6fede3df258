"""The transport of the tools' requests, by the proxies and certificates that the environment names.

Knows the variables of the environment and the two transports; knows no request.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.request import getproxies

from tablestone.transfer.keep_alive_transport import AnswerLimits, KeepAliveTransport


def transport_of(url: str, limits: AnswerLimits) -> dict[str, Any]:
    """The transport, by the proxies and certificates that the environment names, looked up once.

    Only requests knows how to speak to a proxy. It would look both up for every request. It has the limit of a pause
    alone.
    """
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    proxies = _proxies_for(url) if getproxies() else {}
    if not proxies:
        return {"transport": KeepAliveTransport(bundle, limits)}
    verified = {"connection_verify": bundle} if bundle else {}
    from azure.core.pipeline.transport import RequestsTransport  # noqa: PLC0415 - loads requests

    pause = limits.pause_seconds
    transport = RequestsTransport(
        use_env_settings=False, connection_timeout=pause, read_timeout=pause, **verified
    )
    return {"transport": transport, "proxies": proxies, **verified}


def _proxies_for(url: str) -> dict[str, str]:
    from requests.utils import get_environ_proxies  # noqa: PLC0415 - an eighth of the start, and seldom needed

    proxies: dict[str, str] = get_environ_proxies(url)
    return proxies
