# SPDX-License-Identifier: Apache-2.0
"""What the cluster tests share: daemons of one cluster, each in a network namespace of its own, or all on loopback.

The API is reached by the daemons' Unix sockets, so that the test itself stays outside of the namespaces. Only processes
started here are ever signalled, by id, and only links inside of the namespaces made here are ever cut.
"""
import asyncio
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "e2e"))
import harness  # noqa: E402

NETNS = harness.SOURCE / "scripts/netns-cluster"
INFOS, INFOSD = str(harness.BIN / "infos"), str(harness.BIN / "infosd")


def skip(why):
    """A visible skip; under CI it is a failure."""
    print(f"SKIPPED: {why}")
    sys.exit(1 if os.environ.get("CI") == "true" else harness.SKIP)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Daemon:
    """One infosd of a cluster, which may be killed and started again."""

    def __init__(self, cluster, number, address):
        self.cluster, self.number, self.name, self.address = cluster, number, f"n{number}", address
        self.folder = os.path.join(cluster.folder.name, self.name)
        self.unix = os.path.join(cluster.folder.name, f"{self.name}.sock")
        self.log_path = os.path.join(cluster.folder.name, f"{self.name}.log")
        self.process = None

    def run(self, *command):
        """A command of ours on this node."""
        return subprocess.run(self.cluster.on_node(self.number) + list(command), capture_output=True, text=True)

    def infos(self, *command):
        return self.run(INFOS, *command, "--socket", self.unix)

    def start(self):
        log = open(self.log_path, "a")
        command = [INFOSD, "--cluster-dir", self.folder, "--listen", "127.0.0.1:0", "--admin-socket", self.unix,
                   *self.cluster.options]
        self.process = subprocess.Popen(self.cluster.on_node(self.number) + command, stdout=subprocess.PIPE, stderr=log,
                                        text=True)
        log.close()
        line = self.process.stdout.readline()
        if not line.startswith("infosd ready"):
            raise RuntimeError(f"{self.name} did not start: {line!r}\n{self.logs()}")
        return self

    def logs(self):
        with open(self.log_path) as file:
            return file.read()[-6000:]

    def kill(self):
        """kill -9: its workers die with it."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"{self.name} ignored SIGTERM for 30 s:\n{self.logs()}")
        self.process.stdout.close()

    def worker_pids(self):
        """The worker processes that this daemon started."""
        pids = []
        try:
            for task in os.listdir(f"/proc/{self.process.pid}/task"):
                with open(f"/proc/{self.process.pid}/task/{task}/children") as file:
                    pids += [int(pid) for pid in file.read().split()]
        except FileNotFoundError:
            pass
        return pids

    async def admin(self, path):
        status, _, content = await harness.request(self, "GET", f"/admin/v1/{path}")
        if status != 200:
            raise RuntimeError(f"{self.name} {path}: {status} {content[:300]!r}")
        return json.loads(content)


class Cluster:
    """`nodes` daemons. `network`: "loopback" or "netns"."""

    def __init__(self, nodes, network="netns", options=()):
        self.network, self.options = network, list(options)
        self.name = f"c{os.getpid() % 10000000}"
        self.up = False
        if network == "netns":
            self._make_network(nodes)
        self.folder = tempfile.TemporaryDirectory(prefix="infos-cluster-")
        self.daemons = [Daemon(self, n, f"10.83.0.{n}:7400" if network == "netns" else f"127.0.0.1:{free_port()}")
                        for n in range(1, nodes + 1)]

    def _make_network(self, nodes):
        if os.geteuid() != 0 or not shutil.which("nft") or not shutil.which("ip"):
            skip("network namespaces need root, iproute2 and nftables")
        made = subprocess.run([NETNS, "up", self.name, str(nodes)], capture_output=True, text=True)
        if made.returncode != 0:
            skip(f"network namespaces cannot be made: {made.stderr.strip()}")
        self.up = True

    def on_node(self, number):
        return [str(NETNS), "exec", self.name, str(number)] if self.network == "netns" else []

    def __getitem__(self, number):
        return self.daemons[number - 1]

    def cut(self, a, b, how):
        subprocess.run([NETNS, "cut", self.name, str(a), str(b), how], check=True)

    def heal(self):
        subprocess.run([NETNS, "heal", self.name], check=True)

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def _start(self):
        first = self[1]
        made = first.run(INFOS, "init", "--name", "lab", "--node-name", first.name, "--listen", first.address, "--dir",
                         first.folder)
        assert made.returncode == 0, made.stderr
        first.start()
        for daemon in self.daemons[1:]:
            self.join(daemon)
            daemon.start()

    def join(self, daemon, roles="gateway,worker"):
        token = self[1].infos("token", "create", "--roles", roles, "-o", "json")
        assert token.returncode == 0, token.stderr
        token = json.loads(token.stdout)
        joined = daemon.run(INFOS, "join", self[1].address, "--token", token["token"], "--ca-hash", token["ca_hash"],
                            "--node-name", daemon.name, "--listen", daemon.address, "--dir", daemon.folder)
        assert joined.returncode == 0, joined.stderr

    def apply(self, yaml, through=1):
        path = os.path.join(self.folder.name, "spec.yaml")
        with open(path, "w") as file:
            file.write(yaml)
        applied = self[through].infos("apply", path)
        assert applied.returncode == 0, applied.stderr

    def nodes_yaml(self, devices):
        """A Cluster document: `devices(number)` is the YAML of a node's devices."""
        lines = ["apiVersion: infos/v1", "kind: Cluster", "metadata: {name: lab}", "spec:", "  nodes:"]
        lines += [f"    - {{name: {d.name}, address: '{d.address}', devices: {devices(d.number)}}}" for d in self.daemons]
        return "\n".join(lines) + "\n---\n"

    async def wait_workers(self, count, seconds=60):
        """Until every daemon that runs sees `count` workers serving."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            seen = []
            for daemon in self.daemons:
                if daemon.process.poll() is None:
                    rows = (await daemon.admin("workers"))["workers"]
                    seen.append(sum(row["phase"] == "serving" for row in rows))
            if all(n == count for n in seen):
                return
            if loop.time() > end:
                raise RuntimeError(f"want {count} workers serving, the nodes see {seen}\n{self.logs()}")
            await asyncio.sleep(0.05)  # lint: allow

    async def generations(self):
        """Of the workers that serve, as the first daemon sees them."""
        rows = (await self[1].admin("workers"))["workers"]
        return {row["worker"]: row["generation"] for row in rows if row["phase"] == "serving"}

    async def wait_generations_after(self, before, count=3, seconds=60):
        """Until as many workers serve as before, at least `count` of them in a new process."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            now = await self.generations()
            if len(now) == len(before) and sum(now[w] != g for w, g in before.items() if w in now) >= count:
                return
            if loop.time() > end:
                raise RuntimeError(f"workers were {before} and are {now}\n{self.logs()}")
            await asyncio.sleep(0.05)  # lint: allow

    def logs(self):
        return "\n".join(f"---- {d.name}\n{d.logs()}" for d in self.daemons if os.path.exists(d.log_path))

    def __exit__(self, kind, *_):
        if kind is not None:
            print(self.logs(), file=sys.stderr)
        self._end()
        if kind is None and self.reports:
            raise RuntimeError(f"a sanitizer reported:\n{self.reports}")

    def _end(self):
        self.reports = ""
        try:
            for daemon in reversed(self.daemons):
                daemon.stop()
        finally:
            for daemon in self.daemons:
                if daemon.process is not None and daemon.process.poll() is None:
                    daemon.kill()
            if self.up:
                subprocess.run([NETNS, "down", self.name], check=True)
            for daemon in self.daemons:
                if os.path.exists(daemon.log_path):
                    with open(daemon.log_path) as file:
                        log = file.read()
                    found = harness.SANITIZER.search(log)
                    self.reports += log[found.start():found.start() + 8000] if found else ""
            self.folder.cleanup()
