#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: prefill and decode on different nodes give the tokens of one node that does both, whatever the workers' cores, block
sizes and tensor parallel parts (but for ties, which the order of sums decides); KV really moves; nothing stays allocated; between nodes only TLS is spoken. Where the types of
KV differ too, hardly an answer differs: what decode workers add to f16 KV is kept in f32, which one node alone does not do.

Method: configs/pd-two-nodes.yaml in three network namespaces with REQUESTS greedy requests, CONCURRENCY at once, through all
three gateways; each answer is held against an infosd alone. First with f32 KV everywhere, then as the file is. A capture on a node's only
interface is parsed by tshark.

usage: pd_test.py [REQUESTS] [CONCURRENCY]
"""
import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import cluster
import harness

SPEC = (harness.SOURCE / "configs/pd-two-nodes.yaml").read_text().replace("/models/infos-demo.gguf", str(harness.DEMO))
ALONE = f"""apiVersion: infos/v1
kind: Model
metadata: {{name: demo}}
spec:
  source: {harness.DEMO}
  engine: {{threads: 1, kv_dtype: f32}}
"""
LONG = 10
TIE = 1e-4  # nats
WORDS = "the a cat dog sun moon tree river boy girl ran sat saw said big small red blue and then with under over".split()


def bodies(count):
    rng = random.Random(7)
    return [{"model": "demo", "prompt": " ".join(rng.choice(WORDS) for _ in range(rng.randint(12, 90))) + f" {i}",
             "max_tokens": rng.randint(8, 40), "temperature": 0, "ignore_eos": True} for i in range(count)]


async def complete(server, body):
    status, _, content = await harness.request(server, "POST", "/v1/completions", body)
    if status != 200:
        raise RuntimeError(f"status {status}: {content[:500]!r}")
    answer = json.loads(content)
    return answer["choices"][0]["text"]


async def all_of(servers, wanted, concurrency):
    """Answers in order, `concurrency` requests at once, spread over the servers."""
    answers, waiting = [None] * len(wanted), iter(range(len(wanted)))

    async def one():
        for i in waiting:
            answers[i] = await complete(servers[i % len(servers)], wanted[i])

    await asyncio.gather(*(one() for _ in range(concurrency)))
    return answers


async def references(wanted, concurrency):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(ALONE)
        file.flush()
        with harness.Server({}, "--config", file.name) as server:
            await harness.wait_ready(server)
            return await all_of([server], wanted, concurrency)


def first_difference(reference, logprobs, answer):
    """How much less likely, in nats, the answer's first other token was than the reference's; None when it is not known."""
    at = next((k for k, (a, b) in enumerate(zip(reference, answer)) if a != b), min(len(reference), len(answer)))
    origin = logprobs["text_offset"][0]
    for token, top, offset in zip(logprobs["tokens"], logprobs["top_logprobs"], logprobs["text_offset"]):
        begin = offset - origin
        if begin <= at < begin + len(token):
            other = [value for text, value in top.items() if text != token and answer[begin:].startswith(text)]
            return top[token] - max(other) if token in top and other else None
    return None


async def not_ties(wanted, expected, answers, changed):
    """Those of the changed answers that are not turned by rounding alone: with tensor parallel parts sums have another order,
    so of two tokens that are equally likely (within TIE) either may win."""
    if not changed:
        return []
    wrong = []
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(ALONE)
        file.flush()
        with harness.Server({}, "--config", file.name) as server:
            await harness.wait_ready(server)
            for i in changed:
                _, _, content = await harness.request(server, "POST", "/v1/completions", {**wanted[i], "logprobs": 5})
                gap = first_difference(expected[i], json.loads(content)["choices"][0]["logprobs"], answers[i])
                print(f"request {i}: got {answers[i]!r}, want {expected[i]!r}; the first other token was {gap} nats behind")
                if gap is None or gap > TIE:
                    wrong.append(i)
    return wrong


async def no_blocks_left(lab, seconds=10):
    """Until no worker holds a block for a sequence or a peer."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        # Each node is asked for its own: what others heard last may be of a moment before the end.
        rows = [row for d in lab.daemons for row in (await d.admin("workers"))["workers"] if "pid" in row]
        left = {row["worker"]: row["kv_blocks_used"] for row in rows if row["kv_blocks_used"]}
        if not left:
            return
        if loop.time() > end:
            raise RuntimeError(f"blocks still held after {seconds} s, by worker: {left}\n{lab.logs()}")
        await asyncio.sleep(0.1)  # lint: allow


async def fetches(daemon):
    """How many of LONG long requests fetched their prompt's KV, by their traces."""
    for i in range(LONG):
        await complete(daemon, {"model": "demo", "prompt": f"{i} " + "one two three four " * 6, "max_tokens": 300,
                                "temperature": 0, "ignore_eos": True})
    listed = daemon.infos("trace").stdout.splitlines()[1:LONG + 1]
    return sum("from worker" in daemon.infos("trace", line.split()[0]).stdout for line in listed)


class Capture:
    """What crosses node 2's interface."""

    def __init__(self, lab):
        self.path = os.path.join(lab.folder.name, "wire.pcap")
        self.process = subprocess.Popen(lab.on_node(2) + ["tshark", "-q", "-B", "64", "-i", "eth0", "-w", self.path],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if "Capturing on" in line:
                break
        # That is said before the interface is open; the file is made after.
        while self.process.poll() is None and not (os.path.exists(self.path) and os.path.getsize(self.path)):
            time.sleep(0.01)  # lint: allow

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait()
            self.process.stderr.close()

    def check(self):
        self.__exit__()
        read = ["tshark", "-r", self.path, "-T", "fields", "-e", "tcp.port", "-Y"]
        payload = subprocess.run(read + ["tcp.len > 0"], capture_output=True, text=True, check=True).stdout.split("\n")
        assert len(payload) > 100, f"only {len(payload)} packets were captured"
        # Every connection begins with a TLS handshake record, and none carries a record of another protocol.
        first = subprocess.run(["tshark", "-r", self.path, "-T", "fields", "-e", "tcp.stream", "-e", "tcp.payload", "-Y",
                                "tcp.len > 0"], capture_output=True, text=True, check=True).stdout
        seen = {}
        for line in first.splitlines():
            stream, _, data = line.partition("\t")
            seen.setdefault(stream, data)
        plain = {stream: data[:40] for stream, data in seen.items() if not data.startswith("1603")}
        # A connection that was there before the capture begins in the middle: its records are application data.
        plain = {stream: data for stream, data in plain.items() if not data.startswith("1703")}
        assert not plain, f"connections that do not speak TLS: {plain}"
        others = subprocess.run(["tshark", "-r", self.path, "-Y", "ip and not tcp and not icmp and not igmp"], capture_output=True,
                                text=True, check=True).stdout
        assert not others.strip(), f"other traffic between nodes:\n{others[:500]}"


async def run(lab, requests, concurrency):
    wanted = bodies(requests)
    expected = await references(wanted, concurrency)
    lab.apply(SPEC.replace("kv_dtype: f16", "kv_dtype: f32"))
    await lab.wait_workers(4)
    before = await lab.generations()
    capture = Capture(lab) if shutil.which("tshark") else None
    if capture is None and os.environ.get("CI") == "true":
        sys.exit("tshark is missing under CI")
    answers = await all_of(lab.daemons, wanted, concurrency)
    if capture:
        capture.check()
    changed = [i for i, text in enumerate(answers) if text != expected[i]]
    wrong = await not_ties(wanted, expected, answers, changed)
    print(f"{requests} requests at concurrency {concurrency}: {len(wrong)} changed, {len(changed) - len(wrong)} ties fell the other way")
    assert not wrong and len(changed) <= 1 + requests / 500
    moved = await fetches(lab[1])
    print(f"of {LONG} long requests, KV was fetched from another node for {moved}")
    assert moved > 0, "KV does not move"
    await no_blocks_left(lab)

    lab.apply(SPEC)
    await lab.wait_generations_after(before)
    mixed = await all_of(lab.daemons, wanted, concurrency)
    changed = [i for i, text in enumerate(mixed) if text != expected[i]]
    print(f"with f16 and f32 KV mixed: {len(changed)} of {requests} answers differ from those of f32 alone")
    assert len(changed) <= requests / 50
    await no_blocks_left(lab)


def main():
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 120
    concurrency = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    # The model is so small that its decode workers would rather compute prompts themselves.
    with cluster.Cluster(3, options=["--decode-prefill-cost", "1e9"]) as lab:
        asyncio.run(run(lab, requests, concurrency))


if __name__ == "__main__":
    main()
