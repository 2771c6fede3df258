"""Replays the live service's answers, as recorded by its own SDK, against a running server.

`archive` fetches the recordings, `cassettes` reads them, `shared_access` and `bearer` sign again what was scrubbed,
`replayer` sends the requests, `normalised` lists what may differ and why, `comparison` finds what does. Nothing here
imports the server.
"""
