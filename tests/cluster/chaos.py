#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: kill -9 of workers and daemons and cut links lose, repeat and change no token, and leave no block allocated for good.

Method: prefill and decode on nodes 2 and 3 of three network namespaces, greedy streams all the time through node 1; at random
moments a worker or the daemon of node 2 or 3 is killed (and started again), or a link between two nodes vanishes or is reset
for a while. Each stream is held against one infosd alone; gaps between chunks are reported. Only processes started here are
killed, by id; only links in namespaces made here are cut.

usage: chaos.py [KILLS] [CUTS] [SEED]
"""
import asyncio
import os
import random
import signal
import sys
import time

import cluster
import harness
import pd_test

SPEC = pd_test.SPEC.replace("kv_dtype: f16", "kv_dtype: f32")
STREAMS = 12


class Load:
    """Streams one after the other in STREAMS lanes until told to stop."""

    def __init__(self, daemon, wanted, expected):
        self.daemon, self.wanted, self.expected = daemon, wanted, expected
        self.stopping, self.done, self.wrong, self.gaps = False, 0, [], []

    async def lane(self, number):
        at = number
        while not self.stopping:
            i = at % len(self.wanted)
            at += STREAMS
            last = time.monotonic()

            def on_chunk(_):
                nonlocal last
                now = time.monotonic()
                self.gaps.append(now - last)
                last = now

            try:
                text, _ = await harness.stream(self.daemon, self.wanted[i], on_chunk)
            except (OSError, RuntimeError) as error:
                text = f"error: {error}"
            self.done += 1
            if text != self.expected[i]:
                self.wrong.append((i, text))


async def disturb(lab, rng, kills, cuts):
    todo = ["kill"] * kills + ["cut"] * cuts
    rng.shuffle(todo)
    for what in todo:
        await asyncio.sleep(rng.uniform(0.1, 0.5))  # lint: allow
        victim = lab[rng.choice((2, 3))]
        if what == "kill" and rng.random() < 0.7:
            pids = victim.worker_pids()
            if pids:
                try:
                    os.kill(rng.choice(pids), signal.SIGKILL)
                except ProcessLookupError:
                    pass
        elif what == "kill":
            victim.kill()
            await asyncio.sleep(rng.uniform(0, 0.5))  # lint: allow
            await asyncio.to_thread(victim.start)
        else:
            a, b = rng.choice(((1, 2), (1, 3), (2, 3)))
            await asyncio.to_thread(lab.cut, a, b, rng.choice(("drop", "reset")))
            await asyncio.sleep(rng.uniform(0.2, 2.5))  # lint: allow
            await asyncio.to_thread(lab.heal)


async def run(lab, kills, cuts, seed):
    wanted = [{**body, "max_tokens": 120} for body in pd_test.bodies(60)]
    expected = await pd_test.references(wanted, 8)
    lab.apply(SPEC)
    await lab.wait_workers(4)
    load = Load(lab[1], wanted, expected)
    lanes = [asyncio.create_task(load.lane(n)) for n in range(STREAMS)]
    await disturb(lab, random.Random(seed), kills, cuts)
    load.stopping = True
    await asyncio.gather(*lanes)
    gaps = sorted(load.gaps)
    pick = lambda share: gaps[min(len(gaps) - 1, int(len(gaps) * share))]
    print(f"seed {seed}: {kills} kills, {cuts} cuts, {load.done} streams, {len(load.wrong)} wrong; gaps between chunks "
          f"p50 {pick(.5) * 1e3:.1f} ms, p99 {pick(.99) * 1e3:.1f} ms, p99.9 {pick(.999) * 1e3:.0f} ms, longest {gaps[-1]:.2f} s")
    for i, text in load.wrong[:3]:
        print(f"request {i}:\n got {text!r}\nwant {expected[i]!r}")
    assert not load.wrong, f"run again with: chaos.py {kills} {cuts} {seed}"
    await lab.wait_workers(4)
    # KV that was computed for a worker whose gateway lost it is kept until TransferConfig::export_wait has passed (30 s).
    await pd_test.no_blocks_left(lab, seconds=40)


def main():
    kills, cuts, seed = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((1, 6), (2, 4), (3, 1)))
    options = ["--decode-prefill-cost", "1e9"]
    with cluster.Cluster(3, options=options) as lab:
        asyncio.run(run(lab, kills, cuts, seed))


if __name__ == "__main__":
    main()
