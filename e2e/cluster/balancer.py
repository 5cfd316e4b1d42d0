#!/usr/bin/env python3
"""Forwards TCP connections to the first of several servers that accepts them, beginning with another one each time.

usage: balancer.py HOST:PORT SERVER:PORT...
"""

import asyncio
import itertools
import sys

CONNECT_TIMEOUT = 1


async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def connected(servers, first):
    for offset in range(len(servers)):
        host, port = servers[(first + offset) % len(servers)]
        try:
            return await asyncio.wait_for(asyncio.open_connection(host, port), CONNECT_TIMEOUT)
        except (OSError, asyncio.TimeoutError):
            continue
    return None


async def main(listen, servers):
    turn = itertools.count()

    async def serve(reader, writer):
        upstream = await connected(servers, next(turn))
        if upstream is None:
            writer.close()
            return
        await asyncio.gather(copy(reader, upstream[1]), copy(upstream[0], writer))

    server = await asyncio.start_server(serve, *listen)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    addresses = [(host, int(port)) for host, _, port in (text.rpartition(":") for text in sys.argv[1:])]
    asyncio.run(main(addresses[0], addresses[1:]))
