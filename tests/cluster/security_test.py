#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: what a cluster says between its nodes is TLS to the last byte, also keys and values; nothing that listens off loopback
answers anyone without a certificate; a member cannot make plans by its own certificate.

Method: a prefill and a decode worker in two network namespaces, KV over tcp. All that crosses node 2's interface under load is
captured and parsed record by record, and held against the bytes that traces say were fetched. Every listener that `ss` shows is
asked in plain HTTP, with random bytes and by TLS without a certificate. A node that joined as decode sends a plan.
"""
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys

import cluster
import harness
import pd_test

MODEL = f"""apiVersion: infos/v1
kind: Model
metadata: {{name: demo}}
spec:
  source: {harness.DEMO}
  engine: {{threads: 1, kv_memory: 64MiB, max_running: 16}}
  pools:
    - {{phase: prefill, devices: [n1/cpu0]}}
    - {{phase: decode, devices: [n2/cpu0]}}
"""
# Prints what came back from HOST PORT for the bytes on stdin, in hex.
PLAIN = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)
answer = b""
try:
    connection.sendall(sys.stdin.buffer.read())
    connection.shutdown(socket.SHUT_WR)
    while data := connection.recv(4096):
        answer += data
except OSError:  # it closed at some point
    pass
print(answer.hex())
"""
# The same inside of TLS, without a certificate of our own.
NAMELESS = """
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
answer = b""
try:
    with context.wrap_socket(socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)) as connection:
        connection.sendall(sys.stdin.buffer.read())
        while data := connection.recv(4096):
            answer += data
except (ConnectionError, ssl.SSLError):
    pass
print(answer.hex())
"""
# Greets HOST PORT as node NUMBER with the identity in FOLDER, sends the frames on stdin once it is welcome, prints what it hears.
MEMBER = """
import socket, ssl, struct, sys
host, port, number, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False
context.load_verify_locations(folder + "/ca.pem")
context.load_cert_chain(folder + "/node.pem")
connection = context.wrap_socket(socket.create_connection((host, port), 30))
hello = b"\\x0a\\x03lab" + bytes([0x10, number, 0x18, 1, 0x20, 1, 0x28, 1])
connection.sendall(struct.pack("<IH", len(hello), 1) + hello)
buffer = b""
try:
    while data := connection.recv(4096):
        buffer += data
        while len(buffer) >= 6:
            size, kind = struct.unpack("<IH", buffer[:6])
            if len(buffer) < 6 + size:
                break
            payload, buffer = buffer[6:6 + size], buffer[6 + size:]
            print("frame", kind, payload if kind == 3 else "", flush=True)
            if kind == 2:
                connection.sendall(sys.stdin.buffer.read())
except (ConnectionError, ssl.SSLError) as error:
    print("ended", error)
"""
PLAN_PUSH = 64 + 5


def off_loopback(lab, number):
    """(address, port) of everything that listens on a node and can be reached from others."""
    shown = lab[number].run("ss", "-ltnH")
    assert shown.returncode == 0, shown.stderr
    ends = [line.split()[3].rsplit(":", 1) for line in shown.stdout.splitlines()]
    return [(host, int(port)) for host, port in ends if not host.startswith("127.") and host != "[::1]"]


def ask(lab, script, payload, *arguments):
    """From node 2's namespace."""
    command = lab.on_node(2) + [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, input=payload, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def check_listeners(lab):
    http = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    for number in (1, 2):
        listeners = off_loopback(lab, number)
        assert len(listeners) == 2, f"node {number} listens on {listeners}, want its peers' address and its worker's"
        for host, port in listeners:
            assert host == f"10.83.0.{number}", (host, port)
            for payload in (http, os.urandom(2000), b"\x16\x03\x01\x40\x00" + os.urandom(500)):
                answer = bytes.fromhex(ask(lab, PLAIN, payload, host, port).strip())
                # At most one alert record: type 21, version, length 2.
                assert answer == b"" or (answer[:2] == b"\x15\x03" and answer[3:5] == b"\0\2" and len(answer) == 7), (port, answer)
            inside = bytes.fromhex(ask(lab, NAMELESS, http, host, port).strip())
            # Inside of TLS a peer listener says why it closes: one refusal (kind 3), nothing else.
            assert inside == b"" or (inside[4:6] == b"\3\0" and len(inside) == 6 + int.from_bytes(inside[:4], "little")), inside
    open_door = lab[1].run(cluster.INFOSD, "--model", f"demo={harness.DEMO}", "--listen", "10.83.0.1:0")
    assert open_door.returncode == 1 and "--insecure" in open_door.stderr, open_door


def not_tls(data):
    """Why a direction of a connection is not TLS records from its first byte to its last; None when it is. The last may be cut."""
    at = 0
    while at + 5 <= len(data):
        kind, version, size = data[at], data[at + 1:at + 3], int.from_bytes(data[at + 3:at + 5], "big")
        if not 20 <= kind <= 23 or version not in (b"\3\1", b"\3\3") or not 1 <= size <= 16384 + 256:
            return f"at byte {at}: {data[at:at + 40]!r}"
        at += 5 + size
    return None


class Wire(pd_test.Capture):
    """All that crosses node 2's interface, from before its workers start."""

    def directions(self):
        """Bytes by (address, port, address, port, stream), from to; and nothing but TCP was there."""
        self.__exit__()
        others = self.read("-Y", "ip and not tcp and not icmp and not igmp")
        assert not others.strip(), f"other traffic between nodes: {others[:500]}"
        fields = [f for name in ("ip.src", "tcp.srcport", "ip.dst", "tcp.dstport", "tcp.stream", "tcp.seq", "tcp.payload")
                  for f in ("-e", name)]
        pieces = {}
        for line in self.read("-T", "fields", *fields, "-Y", "tcp.len > 0").splitlines():
            *ends, seq, data = line.split("\t")
            pieces.setdefault(tuple(ends), []).append((int(seq), bytes.fromhex(data)))
        return {ends: self.joined(ends, parts) for ends, parts in pieces.items()}

    def read(self, *options):
        return subprocess.run(["tshark", "-r", self.path, *options], capture_output=True, text=True, check=True).stdout

    @staticmethod
    def joined(ends, parts):
        parts.sort(key=lambda part: part[0])
        data, start = bytearray(), parts[0][0]
        for seq, piece in parts:
            have = start + len(data)
            assert seq <= have, f"{ends}: the capture lacks {seq - have} bytes"
            data += piece[have - seq:]  # what was sent again is there already
        return bytes(data)


def fetched_bytes(daemon, count):
    """KV bytes that the last requests fetched, by their traces."""
    total = 0
    for line in daemon.infos("trace").stdout.splitlines()[1:count + 1]:
        shown = json.loads(daemon.infos("trace", line.split()[0], "-o", "json").stdout)
        total += sum(span.get("bytes", 0) for trace in shown["traces"] for span in trace["spans"] if "source" in span)
    return total


async def check_wire(lab):
    with Wire(lab) as wire:
        lab.apply(lab.nodes_yaml(lambda n: "[{name: cpu0}]") + MODEL)
        await lab.wait_workers(2)
        moved = await pd_test.fetches(lab[1])
        assert moved > 0, "no request fetched keys and values"
        kv = fetched_bytes(lab[1], pd_test.LONG)
        data_ports = {port for number in (1, 2) for _, port in off_loopback(lab, number)} - {7400}
        seen = wire.directions()
    plain = {ends: why for ends, data in seen.items() if (why := not_tls(data))}
    assert not plain, f"not TLS: {plain}"
    on_data = sum(len(data) for ends, data in seen.items() if {int(ends[1]), int(ends[3])} & data_ports)
    total = sum(map(len, seen.values()))
    print(f"{len(seen)} directions, {total} bytes, all of them TLS records; {on_data} on data connections for {kv} bytes of KV")
    assert 0 < kv <= on_data, "keys and values did not cross the wire"


async def check_false_plan(lab):
    member = cluster.Daemon(lab, 2, "10.83.0.2:7500")
    member.name, member.folder = "member", os.path.join(lab.folder.name, "member")
    lab.join(member, "decode")
    before = [await daemon.admin("plan") for daemon in lab.daemons]
    plan = b"\x08\xff\xff\x03\x10\xff\x01"  # epoch and term far ahead
    push = b"\x0a" + bytes([len(plan)]) + plan
    message = b"\x32" + bytes([len(push)]) + push
    frame = len(message).to_bytes(4, "little") + PLAN_PUSH.to_bytes(2, "little") + message
    for number in (1, 2):
        heard = ask(lab, MEMBER, frame, f"10.83.0.{number}", 7400, 3, member.folder)
        assert "frame 2" in heard, f"n{number} did not welcome it: {heard}"
        assert f"frame of kind {PLAN_PUSH} is for the roles controller, its roles are decode" in heard, heard
        assert re.search(f"a peer broke a rule; its link is cut.*kind {PLAN_PUSH}", lab[number].logs()), lab[number].logs()
    assert [await daemon.admin("plan") for daemon in lab.daemons] == before


def main():
    assert not_tls(b"\x17\3\3\0\5hello\x15\3\3\0\2ab") is None
    assert not_tls(b"\x17\3\3\0\5helloGET / HTTP/1.1") and not_tls(b"\0" * 20)
    if not shutil.which("tshark"):
        cluster.skip("tshark is missing")
    # The model is so small that its decode worker would rather compute prompts itself; on one host memory is shared.
    with cluster.Cluster(2, options=["--decode-prefill-cost", "1e9", "--kv-transports", "tcp"]) as lab:
        asyncio.run(check_wire(lab))
        check_listeners(lab)
        asyncio.run(check_false_plan(lab))


main()
