"""Every parser of the server that reads what a client sends, by its name."""

from typing import Final

from stress.fuzz.auth_parsers import AUTH_PARSERS
from stress.fuzz.parser import Parser
from stress.fuzz.payload_parsers import PAYLOAD_PARSERS
from stress.fuzz.text_parsers import TEXT_PARSERS

PARSERS: Final[dict[str, Parser]] = {**TEXT_PARSERS, **PAYLOAD_PARSERS, **AUTH_PARSERS}
