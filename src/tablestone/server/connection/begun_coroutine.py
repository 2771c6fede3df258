"""The rest of a coroutine that ran up to its first `await` outside a task, as a coroutine for a task."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any


async def finish(coroutine: Coroutine[Any, Any, None], awaited: Any) -> None:
    """The rest of a coroutine that ran up to its first `await`, as a coroutine for a task."""
    await _rest_of(coroutine, awaited)


@types.coroutine
def _rest_of(coroutine: Coroutine[Any, Any, None], awaited: Any) -> Generator[Any, Any, None]:
    step: Callable[[], Any]
    while True:
        try:
            answer = yield awaited
        except BaseException as error:  # noqa: BLE001 - the coroutine gets a cancellation too
            step = partial(coroutine.throw, error)
        else:
            step = partial(coroutine.send, answer)
        try:
            awaited = step()
        except StopIteration:
            return
