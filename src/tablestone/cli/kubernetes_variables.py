"""The variables that Kubernetes sets for a service with the name tablestone: they look like options, and are none."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tablestone.cli.options import PORT, VARIABLE_PREFIX


def without_service_links(
    environment: Mapping[str, str],
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """The environment without the variables of Kubernetes for a service with the name tablestone, and a sentence.

    TABLESTONE_PORT is then the address of that service, as `tcp://10.0.0.1:10002`.
    """
    if _SERVICE_LINK.match(environment.get(PORT.variable, "")) is None:
        return environment, ()
    own = {
        name: value
        for name, value in environment.items()
        if not name.startswith((f"{VARIABLE_PREFIX}SERVICE_", PORT.variable))
    }
    return own, (
        f"{PORT.variable} is the address of a service, as Kubernetes sets it, and is ignored: "
        f"{PORT.flag} gives the port.",
    )


_SERVICE_LINK = re.compile(r"(?:tcp|udp|sctp)://")
