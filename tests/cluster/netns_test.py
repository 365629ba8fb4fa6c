#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: links of scripts/netns-cluster carry, vanish, reset and heal as it says, and nothing is left behind.

Method: an echo server on node 1 and a client on node 2; each kind of cut; then the namespaces must be gone.
"""
import os
import shutil
import subprocess
import sys

import cluster

SCRIPT = os.path.join(os.environ.get("INFOS_SOURCE_DIR", os.path.join(os.path.dirname(__file__), "../..")), "scripts/netns-cluster")
NAME = f"t{os.getpid() % 10000000}"
SERVER = """
import socket, threading
listener = socket.create_server(("0.0.0.0", 5555))
print("up", flush=True)
def echo(connection):
    try:
        while data := connection.recv(100):
            connection.sendall(data)
    except OSError:
        pass
while True:
    threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
"""
# Says one word when connected and one after each line it reads: "ok", "reset" or "silence".
CLIENT = """
import socket, sys
connection = socket.create_connection(("10.83.0.1", 5555), 10)
for line in sys.stdin:
    connection.settimeout(float(line))
    try:
        connection.sendall(b"x")
        print("ok" if connection.recv(1) == b"x" else "closed", flush=True)
    except ConnectionResetError:
        print("reset", flush=True)
    except TimeoutError:
        print("silence", flush=True)
"""


def script(*arguments, check=True):
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=check)


def python(node, text):
    return subprocess.Popen([SCRIPT, "exec", NAME, node, sys.executable, "-c", text], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)


def ask(client, seconds):
    client.stdin.write(f"{seconds}\n")
    client.stdin.flush()
    return client.stdout.readline().strip()


def run(started):
    server = python("1", SERVER)
    started.append(server)
    assert server.stdout.readline() == "up\n"
    for how, answer, seconds in (("drop", "silence", 0.3), ("reset", "reset", 10), ("oneway", "silence", 0.3)):
        client = python("2", CLIENT)
        started.append(client)
        assert ask(client, 10) == "ok"
        script("cut", NAME, "1", "2", how)
        assert ask(client, seconds) == answer, how
        script("heal", NAME, "1", "2")
        again = python("2", CLIENT)
        started.append(again)
        assert ask(again, 10) == "ok", f"not healed after {how}"
    refused = script("down", NAME, check=False)
    assert refused.returncode == 1 and "still run" in refused.stderr, refused
    bad = script("cut", NAME, "1", "9", "drop", check=False)
    assert bad.returncode == 1 and "no node '9'" in bad.stderr, bad


def main():
    if os.geteuid() != 0 or not shutil.which("nft") or not shutil.which("ip"):
        cluster.skip("needs root, iproute2 and nftables")
    made = script("up", NAME, "2", check=False)
    if made.returncode != 0:
        cluster.skip(f"network namespaces cannot be made: {made.stderr.strip()}")
    started = []
    try:
        run(started)
    finally:
        for process in started:
            process.kill()
            process.wait()
        script("down", NAME)
    assert NAME not in script("list").stdout.split()


main()
