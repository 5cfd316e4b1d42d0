#!/usr/bin/env python3
"""Forwards TCP connections to API servers that are ready, to another one each time.

usage: balancer.py HOST:PORT SERVER:PORT...

As the documentation of kubeadm asks of a balancer, it checks /readyz. A server that fails twice gets no connections and loses
those it has: while its machine shuts down, an API server without its etcd keeps connections open and answers nothing.
"""

import asyncio
import itertools
import ssl
import sys

CONNECT_TIMEOUT = 1
CHECK_TIMEOUT = 2
CHECK_INTERVAL = 1
FAILURES = 2


class Server:
    def __init__(self, host, port):
        self.host, self.port = host, port
        self.failures = 0
        self.connections = set()

    async def is_ready(self):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=context)
        try:
            writer.write(f"GET /readyz HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n\r\n".encode())
            status = await reader.readline()
            return b" 200 " in status
        finally:
            writer.transport.abort()

    async def check(self):
        while True:
            try:
                ready = await asyncio.wait_for(self.is_ready(), CHECK_TIMEOUT)
            except (OSError, asyncio.TimeoutError):
                ready = False
            self.failures = 0 if ready else self.failures + 1
            if self.failures >= FAILURES:
                for writer in list(self.connections):
                    writer.transport.abort()
            await asyncio.sleep(CHECK_INTERVAL)


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
    """Prefers servers that are ready; before the first one is, kubeadm itself waits for it."""
    turn = servers[first % len(servers) :] + servers[: first % len(servers)]
    for server in sorted(turn, key=lambda server: server.failures >= FAILURES):
        try:
            return server, await asyncio.wait_for(asyncio.open_connection(server.host, server.port), CONNECT_TIMEOUT)
        except (OSError, asyncio.TimeoutError):
            continue
    return None


async def main(listen, servers):
    turn = itertools.count()
    checks = [asyncio.create_task(server.check()) for server in servers]

    async def serve(reader, writer):
        upstream = await connected(servers, next(turn))
        if upstream is None:
            writer.close()
            return
        server, (answers, requests) = upstream
        ends = {writer, requests}
        server.connections |= ends
        try:
            await asyncio.gather(copy(reader, requests), copy(answers, writer))
        finally:
            server.connections -= ends

    listener = await asyncio.start_server(serve, *listen)
    async with listener:
        await asyncio.gather(listener.serve_forever(), *checks)


if __name__ == "__main__":
    addresses = [(host, int(port)) for host, _, port in (text.rpartition(":") for text in sys.argv[1:])]
    asyncio.run(main(addresses[0], [Server(*address) for address in addresses[1:]]))
