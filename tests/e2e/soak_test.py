#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: many concurrent requests with random aborts leak nothing and change nothing.

Method: the answers of every distinct request are first taken one at a time; then REQUESTS requests at CONCURRENCY, a third
of them hung up on at a random place. Every answer must equal its reference byte for byte (a hung-up one must be a prefix of
it), and afterwards no KV block, descriptor or memory may be held that was not held after the warm-up.

usage: soak_test.py [REQUESTS] [CONCURRENCY] [SEED]
"""
import asyncio
import os
import random
import sys

import harness

DISTINCT = 40
MODEL = "demo"


def requests(rng):
    words = ("infos", "cache", "What is", "a pool", "Tell me", "story", "prefill", "one", "two", "blue", "the cat", "plan")
    out = []
    for i in range(DISTINCT):
        prompt = " ".join(rng.choice(words) for _ in range(rng.randint(1, 60)))
        out.append({"model": MODEL, "prompt": prompt, "max_tokens": rng.randint(1, 96), "seed": i, "ignore_eos": True,
                    "temperature": rng.choice([0, 0.8, 1.5]), "top_p": rng.choice([1, 0.9]),
                    "frequency_penalty": rng.choice([0, 0.5])})
    return out


def resources(server):
    pids = [server.process.pid] + server.worker_pids()
    fds = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)
    rss = 0
    for pid in pids:
        with open(f"/proc/{pid}/statm") as file:
            rss += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return fds, rss


async def storm(server, bodies, references, count, concurrency, rng):
    """Runs `count` requests; returns how many were hung up on."""
    gate, aborted = asyncio.Semaphore(concurrency), 0
    plan = [(rng.randrange(DISTINCT), rng.random() < 1 / 3, rng.randint(0, 40)) for _ in range(count)]

    async def one(which, abort, after):
        nonlocal aborted
        async with gate:
            hang_up = (lambda text: len(text) < after) if abort else None
            text, reason = await harness.stream(server, bodies[which], hang_up)
            want = references[which]
            if abort and reason is None:
                aborted += 1
                assert want.startswith(text), f"request {which}: {text!r} is not a prefix of {want!r}"
            else:
                assert text == want, f"request {which}:\n got {text!r}\nwant {want!r}"

    await asyncio.gather(*(one(*entry) for entry in plan))
    return aborted


async def idle(server):
    for _ in range(200):
        if await harness.metric(server, "infos_kv_blocks_used") == 0:
            return
        await asyncio.sleep(0.05)  # lint: allow
    raise RuntimeError("KV blocks are still in use 10 s after the last request")


async def run(server, count, concurrency, seed):
    rng = random.Random(seed)
    await harness.wait_ready(server)
    bodies = requests(rng)
    references = [await harness.complete(server, body) for body in bodies]
    await storm(server, bodies, references, max(count // 4, concurrency * 2), concurrency, rng)  # warm-up
    await idle(server)
    fds_before, rss_before = resources(server)
    aborted = await storm(server, bodies, references, count, concurrency, rng)
    await idle(server)
    for _ in range(100):  # sockets in their last moments
        fds, rss = resources(server)
        if fds <= fds_before:
            break
        await asyncio.sleep(0.05)  # lint: allow
    print(f"{count} requests at concurrency {concurrency}, {aborted} hung up on: descriptors {fds_before} -> {fds}, "
          f"resident memory {rss_before / 2**20:.1f} -> {rss / 2**20:.1f} MiB, blocks in use 0")
    assert aborted > count // 10, "the test did not hang up often enough to mean anything"
    assert fds <= fds_before, "descriptors leak"
    # Allocators keep some; a leak of a request's state (some KiB each) over `count` requests would be more than this.
    sanitized = "clang_rt" in open(f"/proc/{server.process.pid}/maps").read() or "asan" in open(
        f"/proc/{server.process.pid}/maps").read()
    assert sanitized or rss - rss_before < 8 * 2**20, "memory grows"


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    concurrency = int(sys.argv[2]) if len(sys.argv) > 2 else 32
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    print(f"seed {seed}")
    with harness.Server({MODEL: harness.DEMO}) as server:
        asyncio.run(run(server, count, concurrency, seed))


main()
