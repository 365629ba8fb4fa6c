#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: any gateway of a cluster serves a model whose workers run on other nodes, with the tokens of a single node; nodes and
models are drained and taken back; the controller may be gone; a daemon that is killed comes back with its part.

Method: three daemons on loopback, one worker on each of two; answers are held against one infosd alone.
"""
import asyncio
import json

import cluster
import harness

MODEL = "demo"


def spec(lab):
    return lab.nodes_yaml(lambda n: "[{name: cpu0}]") + f"""apiVersion: infos/v1
kind: Model
metadata: {{name: {MODEL}}}
spec:
  source: {harness.DEMO}
  engine: {{threads: 1}}
  pools:
    - {{phase: aggregated, devices: [n2/cpu0, n3/cpu0]}}
"""


def bodies(count):
    return [{"model": MODEL, "prompt": f"Once upon a time {i}", "max_tokens": 40, "seed": i, "ignore_eos": True,
             "temperature": 0.0 if i % 2 == 0 else 1.0} for i in range(count)]


async def references(wanted):
    with harness.Server({MODEL: harness.DEMO}, "--threads", "1") as server:
        await harness.wait_ready(server)
        return [await harness.complete(server, body) for body in wanted]


async def ask(daemon, wanted, expected):
    """All at once; every stream is its reference."""
    results = await asyncio.gather(*(harness.stream(daemon, body) for body in wanted))
    changed = [i for i, (text, _) in enumerate(results) if text != expected[i]]
    assert not changed, f"asked through {daemon.name}, changed: {changed}: {results[changed[0]]} {expected[changed[0]]!r}"


async def check_drains(lab, wanted, expected):
    for what, name, workers in (("node", "n3", 1), ("model", MODEL, 0)):
        drained = lab[2].infos("drain", what, name)
        assert drained.returncode == 0, drained.stderr
        await lab.wait_workers(workers)
        if workers:
            await ask(lab[1], wanted[:4], expected)
        back = lab[3].infos("drain", what, name, "--undo")
        assert back.returncode == 0, back.stderr
        await lab.wait_workers(2)
    refused = lab[1].infos("drain", "node", "n9")
    assert refused.returncode == 1 and "there is no node 'n9'" in refused.stderr, refused.stderr


async def run(lab):
    wanted = bodies(12)
    expected = await references(wanted)
    lab.apply(spec(lab), through=2)
    await lab.wait_workers(2)
    for number in (1, 2, 3):
        await ask(lab[number], wanted, expected)
    shown = lab[1].infos("get", "nodes")
    assert shown.returncode == 0 and "n3" in shown.stdout, shown.stderr
    shown = lab[3].infos("get", "plan", "-o", "json")
    assert json.loads(shown.stdout)["epoch"] == 1, shown.stdout
    await check_drains(lab, wanted, expected)

    # A worker's daemon is killed in the middle of streams; then it comes back.
    streams = asyncio.gather(*(harness.stream(lab[2], body, killer(lab, i)) for i, body in enumerate(wanted)))
    results = await streams
    assert [text for text, _ in results] == expected
    lab[3].start()
    await lab.wait_workers(2)

    # Without the controller everything that was planned is served, also after a restart.
    lab[1].kill()
    await ask(lab[2], wanted, expected)
    lab[3].kill()
    lab[3].start()
    await lab.wait_workers(2)
    await ask(lab[3], wanted, expected)
    refused = lab[2].infos("apply", f"{lab.folder.name}/spec.yaml")
    assert refused.returncode == 1 and "no controller" in refused.stderr, refused.stderr
    lab[1].start()
    await lab.wait_workers(2)
    await ask(lab[1], wanted, expected)


def killer(lab, stream):
    def on_chunk(text):
        if stream == 0 and len(text) > 20 and lab[3].process.poll() is None:
            lab[3].kill()
    return on_chunk


def main():
    with cluster.Cluster(3, "loopback") as lab:
        asyncio.run(run(lab))


main()
