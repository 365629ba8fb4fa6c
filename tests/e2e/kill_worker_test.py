#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: kill -9 of the worker in the middle of many streams loses, repeats and changes no token.

Method: references one at a time; then STREAMS streams at once, and when a third of the expected text has arrived the worker
(a child of the infosd that this test started) is killed; every stream must still end with its reference text.

usage: kill_worker_test.py [STREAMS] [KILLS]
"""
import asyncio
import os
import signal
import sys

import harness

MODEL = "demo"


async def run(server, streams, kills):
    await harness.wait_ready(server)
    bodies = [{"model": MODEL, "prompt": f"Once upon a time {i}", "max_tokens": 120, "seed": i, "ignore_eos": True,
               "temperature": 0.0 if i % 3 == 0 else 1.0, "frequency_penalty": 0.3 if i % 5 == 0 else 0.0}
              for i in range(streams)]
    references = [await harness.complete(server, body) for body in bodies]
    for kill in range(kills):
        arrived, total, killed = [0] * streams, sum(map(len, references)), False

        def watch(i):
            def on_chunk(text):
                nonlocal killed
                arrived[i] = len(text)
                if not killed and sum(arrived) > total * (kill + 1) / (kills + 2):
                    killed = True
                    pids = server.worker_pids()
                    assert len(pids) == 1, pids
                    os.kill(pids[0], signal.SIGKILL)
            return on_chunk

        results = await asyncio.gather(*(harness.stream(server, body, watch(i)) for i, body in enumerate(bodies)))
        assert killed, "the worker was never killed"
        changed = [i for i, (text, _) in enumerate(results) if text != references[i]]
        for i in changed[:3]:
            print(f"stream {i}:\n got {results[i][0]!r}\nwant {references[i]!r}")
        print(f"kill {kill + 1}: {streams} streams, {len(changed)} changed")
        assert not changed
        await harness.wait_ready(server)


def main():
    streams = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with harness.Server({MODEL: harness.DEMO}) as server:
        asyncio.run(run(server, streams, kills))


main()
