"""Bounds on what the peers of the socket occupy in the agent's memory."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from node_agent.socket import socket_server
from node_agent.system.process_owner import UnixUser
from tests.agent.shared_machine import Box, People, as_root, people
from tests.agent.simulated_node import World, knocking, play

__all__ = ["people"]

MIB = 1 << 20


async def connect(world: World, user=None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    sock = knocking(world.config.socket_path(), user)
    return await asyncio.open_unix_connection(sock=sock, limit=1 << 22)


async def as_server(world: World, name: str, user=None):
    reader, writer = await connect(world, user)
    hello = {"type": "server_hello", "server": name, "pid": 1}
    writer.write(json.dumps(hello).encode() + b"\n")
    await reader.readline()
    return reader, writer


async def is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(60):
            return await reader.read(1) == b""
    except ConnectionError:
        return True


def test_before_the_hello_a_line_is_short(caplog: pytest.LogCaptureFixture):
    async def story():
        async with World() as world:
            reader, writer = await connect(world)
            writer.write(b"x" * (socket_server.MAX_HELLO_BYTES + 1))
            assert await is_closed(reader)
            assert "too long a line" in caplog.text
            writer.close()

    play(story())


@as_root
def test_unfinished_lines_of_one_user_are_bounded_and_others_go_on(
    people: People, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING)

    async def story():
        async with Box(people) as box:
            a = await box.hers.launch("a", wants_gpu=False)
            budgets, most, writers = box.agent.socket_server.budgets, 0, []
            for number in range(12):
                _, writer = await as_server(box, f"s{number}", people.bob)
                writers.append(writer)
                writer.write(b"x" * (5 * MIB))
                for _ in range(40):
                    await asyncio.sleep(0.01)
                    most = max(most, budgets.total(UnixUser(people.bob.pw_uid)))
            assert 20 * MIB < most <= socket_server.MAX_USER_BYTES
            assert "the connection of process" in caplog.text
            assert (await a.run("result = 1", timeout=60))["result"] == 1
            assert budgets.total(UnixUser(people.alice.pw_uid)) < MIB
            for writer in writers:
                writer.transport.abort()
            await box.until(
                lambda: budgets.total(UnixUser(people.bob.pw_uid)) < MIB, "all is freed"
            )

    play(story())


def test_the_largest_connection_is_the_one_that_is_closed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(socket_server, "MAX_USER_BYTES", 4 * MIB)

    async def story():
        async with World() as world:
            small, quiet = await as_server(world, "small")
            large, loud = await as_server(world, "large")
            quiet.write(b"x" * MIB)
            loud.write(b"x" * (3 * MIB) + b"y" * 1000)
            assert await is_closed(large)
            quiet.write(b'"\n{"type": "kernel_act", "n": 1, "kernel_id": "k", "action": "pin"}\n')
            async with asyncio.timeout(60):
                assert b"no kernel k" in await small.readline()
            quiet.close(), loud.close()

    play(story())


def test_a_long_line_of_a_server_is_read_and_a_longer_one_is_not():
    async def story():
        async with World() as world:
            reader, writer = await as_server(world, "s")
            request = {"type": "kernel_act", "n": 1, "kernel_id": "k" * MIB, "action": "pin"}
            writer.write(
                json.dumps(request).encode() + b"\n" + json.dumps(request).encode() + b"\n"
            )
            for _ in range(2):
                assert len(await asyncio.wait_for(reader.readuntil(b"\n"), 60)) > 0
            writer.write(b"x" * (9 * MIB))
            assert await is_closed(reader)
            writer.close()

    play(story())


def test_what_was_sent_before_the_end_is_handled():
    async def story():
        async with World() as world:
            await world.server.register("a")
            reader, writer = await as_server(world, "s")
            request = {"type": "kernel_act", "n": 1, "kernel_id": "k", "action": "pin"}
            writer.write(json.dumps(request).encode() + b"\n")
            writer.write_eof()
            assert b"no kernel k" in await asyncio.wait_for(reader.readline(), 60)
            assert await reader.read() == b""
            writer.close()

    play(story())
