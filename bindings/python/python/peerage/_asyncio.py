"""Waiting for a table in an event loop."""

import asyncio


async def wait(waiting, timeout, too_late):
    """The outcome of a native wait. Its thread wakes the loop; nothing of it runs in another loop's thread."""
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()

    def wake():
        try:
            loop.call_soon_threadsafe(woken.set)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    async def outcome():
        while True:
            woken.clear()
            done = waiting.poll(wake)
            if done is not None:
                return done
            await woken.wait()

    if timeout is None:
        return await outcome()
    task = asyncio.ensure_future(outcome())
    try:
        done, _ = await asyncio.wait({task}, timeout=max(timeout, 0))
    except BaseException:
        task.cancel()
        raise
    if not done:
        task.cancel()
        raise too_late
    return task.result()


async def end(waiting):
    await wait(waiting, None, None)  # it answers at its own deadline
    return False  # an exception goes on


async def value(result):
    return result
