"""The simulated loop's time advances with every wait, however short."""

import asyncio

from stress.simulation.simulated_loop import SimulatedLoop


def test_a_wait_that_is_lost_in_the_sum_moves_the_time_on() -> None:
    """A million seconds and 10^-12 are a million seconds: seeds 2453 and 2482 waited forever."""

    async def wait() -> float:
        await asyncio.sleep(1e6)
        before = loop.time()
        await asyncio.sleep(1e-12)
        return loop.time() - before

    loop = SimulatedLoop()
    try:
        assert 0 < loop.run_until_complete(wait()) < 1e-8
    finally:
        loop.close()
