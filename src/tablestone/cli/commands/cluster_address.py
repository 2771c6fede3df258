"""The cluster that a command of `tablestone cluster` is about: its option and its address."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tablestone.cli.encryption_keys import KEY_VARIABLE
from tablestone.cli.option_sources import read_configuration
from tablestone.cli.option_values import BrokenOption
from tablestone.cli.options import DATA, ENGINE
from tablestone.cli.parameters import by_option_name
from tablestone.engines.cassandra.cluster_url import FORM, SCHEME, ClusterAddress, parse_address
from tablestone.engines.engine_url import EngineUrl

if TYPE_CHECKING:
    from types import ModuleType

CLUSTER_OPTIONS = (replace(ENGINE, help=f"The cluster: {FORM}.", default="none"),)


def cluster_address(given: dict[str, Any]) -> ClusterAddress:
    """The address in the options; `BrokenOption` if they name no cluster."""
    # A directory in the environment is the one that was used before, and a key is that of the directory of `load` and
    # `unload`: they are no options of the cluster.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(KEY_VARIABLE) and name != DATA.variable
    }
    configuration = read_configuration(by_option_name(given), environment)
    if EngineUrl.parse(configuration.engine).scheme != SCHEME:
        raise BrokenOption(f"Say which cluster: --engine '{FORM}'.")
    return parse_address(configuration.engine)


def opening() -> ModuleType:
    """The module that opens clusters; `EngineRefused` without the driver."""
    from tablestone.engines.cassandra import kind  # noqa: PLC0415 - for these commands only

    return kind.opening()
