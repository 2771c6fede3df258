"""Replays the live service's answers, as recorded by its own SDK, against a running server.

`archive` fetches the recordings, `cassettes` reads them, `reach` says which exchanges belong to a
later issue, `replayer` sends them, `normalised` lists what may differ and why, `comparison` finds
what does. Nothing here imports the server.
"""

from __future__ import annotations
