"""A table in an event loop."""

import asyncio
import threading

import pytest
from recorder import PATIENCE, Recorder, until

import peerage
from peerage import PeerTable


def test_ready_connects_and_answers_the_peer_while_the_loop_goes_on():
    recorder = Recorder(gate=threading.Event())

    async def main():
        async with PeerTable(recorder.connect, recorder.disconnect) as table:
            peer = table.insert("a", 1)
            waits = [asyncio.ensure_future(table.ready("a", PATIENCE)) for _ in range(20)]
            passes = 0
            while passes < 100 or not recorder.connects:
                await asyncio.sleep(0)
                passes += 1
            assert not any(wait.done() for wait in waits)
            recorder.gate.set()
            assert set(await asyncio.gather(*waits)) == {peer}
            assert await table.ready("a") is peer
        assert recorder.reasons() == ["shutdown"]
        with pytest.raises(peerage.TableClosed):
            table.lease("a")

    asyncio.run(main())
    assert len(recorder.connects) == 1


def test_ready_raises_what_ensure_raises():
    recorder = Recorder(fails=OSError("no"))

    async def main():
        async with PeerTable(recorder.connect, backoff_base=60, backoff_cap=60) as table:
            with pytest.raises(peerage.UnknownPeer):
                await table.ready("a")
            table.insert("a", 1)
            with pytest.raises(peerage.ConnectFailed) as failed:
                await table.ready("a", PATIENCE)
            assert failed.value.__cause__ is recorder.fails
            with pytest.raises(peerage.BackingOff):
                await table.ready("a")

    asyncio.run(main())


def test_a_timeout_and_a_cancel_end_the_wait_alone():
    recorder = Recorder(gate=threading.Event())

    async def main():
        async with PeerTable(recorder.connect) as table:
            table.insert("a", 1)
            with pytest.raises(peerage.TimedOut):
                await table.ready("a", 0.05)
            waiting = asyncio.ensure_future(table.ready("a"))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            recorder.gate.set()
            assert (await table.ready("a", PATIENCE)).phase == "ready"

    asyncio.run(main())
    assert len(recorder.connects) == 1


def test_an_exception_goes_on_through_async_with():
    async def main():
        async with PeerTable(lambda attempt: 1):
            raise ValueError

    with pytest.raises(ValueError):
        asyncio.run(main())


def test_a_loop_that_is_closed_meanwhile_harms_nobody(monkeypatch):
    told = []
    monkeypatch.setattr("sys.unraisablehook", told.append)
    recorder = Recorder(gate=threading.Event())
    with PeerTable(recorder.connect) as table:
        table.insert("a", 1)

        async def give_up():
            asyncio.ensure_future(table.ready("a"))
            await asyncio.sleep(0.05)

        asyncio.run(give_up())
        recorder.gate.set()
        until(lambda: table.peers["a"].phase == "ready")

        async def again():
            return await table.ready("a", PATIENCE)

        assert asyncio.run(again()) is table.peers["a"]
    assert told == []
