# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: starting infosd on a free port with a model, and a small HTTP client on asyncio.

Everything stays on loopback. Only processes started here are ever signalled, by id.
"""
import asyncio
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ.get("INFOS_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
BIN = pathlib.Path(os.environ.get("INFOS_BIN", SOURCE / "build/release/bin"))
DATA = pathlib.Path(os.environ.get("INFOS_TEST_DATA", SOURCE / "../shared/data"))
DEMO = SOURCE / "configs/demo/infos-demo.gguf"
SKIP = 77
SANITIZER = re.compile(r"(ERROR|WARNING): \w+Sanitizer|runtime error: ")


def need(path):
    """Ends the test as skipped (failed under CI=true) when a file of the shared test data is missing."""
    if pathlib.Path(path).exists():
        return path
    if os.environ.get("CI") == "true":
        sys.exit(f"missing test data under CI: {path}")
    print(f"SKIPPED: {path} is not here (set INFOS_TEST_DATA)")
    sys.exit(SKIP)


class Server:
    """An infosd of our own, on a free port; ends with the `with` block."""

    def __init__(self, models, *options, env=None):
        self.folder = tempfile.TemporaryDirectory(prefix="infos-e2e-")
        self.log_path = os.path.join(self.folder.name, "infosd.log")
        self.admin = os.path.join(self.folder.name, "admin.sock")
        command = [str(BIN / "infosd"), "--listen", "127.0.0.1:0", "--admin-socket", self.admin]
        for name, path in models.items():
            command += ["--model", f"{name}={path}"]
        self.log = open(self.log_path, "w+")
        self.process = subprocess.Popen(command + list(options), stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env={**os.environ, **(env or {})})
        self.url = None
        for line in self.process.stdout:
            match = re.search(r"http://([\d.]+):(\d+)", line)
            if match:
                self.host, self.port = match.group(1), int(match.group(2))
                self.url = f"http://{self.host}:{self.port}"
                break
        if self.url is None:
            raise RuntimeError(f"infosd did not start:\n{self.logs()}")

    def logs(self):
        self.log.flush()
        with open(self.log_path) as file:
            return file.read()[-8000:]

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise RuntimeError(f"infosd ignored SIGTERM for 30 s:\n{self.logs()}")
        reports = self.sanitizer_reports()
        if kind is not None or reports:
            print(self.logs(), file=sys.stderr)
        self.log.close()
        self.folder.cleanup()
        if kind is None and reports:
            raise RuntimeError(f"a sanitizer reported:\n{reports}")

    def sanitizer_reports(self):
        """What sanitizers said in infosd and its workers (a worker that they end is restarted, so its status is not seen)."""
        with open(self.log_path) as file:
            log = file.read()
        found = SANITIZER.search(log)
        return log[found.start():found.start() + 16000] if found else ""

    def worker_pids(self):
        """The worker processes that this infosd started."""
        pids = []
        for task in os.listdir(f"/proc/{self.process.pid}/task"):
            with open(f"/proc/{self.process.pid}/task/{task}/children") as file:
                pids += [int(pid) for pid in file.read().split()]
        return pids


async def connect(server):
    """A connection to the server's API; a server with `unix` is reached by its Unix socket, from any network namespace."""
    if getattr(server, "unix", None):
        return await asyncio.open_unix_connection(server.unix)
    return await asyncio.open_connection(server.host, server.port)


async def request(server, method, path, body=None, headers=()):
    """(status, headers, body bytes) of one request on its own connection."""
    reader, writer = await connect(server)
    payload = b"" if body is None else (body if isinstance(body, bytes) else json.dumps(body).encode())
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(payload)}\r\n"
    if body is not None:
        head += "Content-Type: application/json\r\n"
    for name, value in headers:
        head += f"{name}: {value}\r\n"
    writer.write(head.encode() + b"\r\n" + payload)
    await writer.drain()
    raw = await reader.read()
    writer.close()
    header, _, content = raw.partition(b"\r\n\r\n")
    lines = header.decode().split("\r\n")
    fields = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
    if fields.get("transfer-encoding") == "chunked":
        content = unchunk(content)
    return int(lines[0].split()[1]), fields, content


def unchunk(data):
    out = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        n = int(size, 16)
        if n == 0:
            break
        out, data = out + data[:n], data[n + 2:]
    return out


async def wait_ready(server, seconds=120):
    """Returns when /ready answers 200."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        status, _, _ = await request(server, "GET", "/ready")
        if status == 200:
            return
        await asyncio.sleep(0.05)  # lint: allow
    raise RuntimeError(f"not ready after {seconds} s:\n{server.logs()}")


async def complete(server, body, path="/v1/completions"):
    """The text of a non-streamed answer; raises on any other status than 200."""
    status, _, content = await request(server, "POST", path, body)
    if status != 200:
        raise RuntimeError(f"status {status}: {content[:500]!r}")
    choice = json.loads(content)["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"]


async def stream(server, body, on_chunk=None, path="/v1/completions"):
    """Streams an answer; `on_chunk(text_so_far)` may return False to hang up. Returns (text, finish reason or None)."""
    reader, writer = await connect(server)
    payload = json.dumps({**body, "stream": True}).encode()
    writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 f"Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
    await writer.drain()
    text, reason, done = "", None, False
    try:
        status = await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError(f"{status!r} {await reader.read(2000)!r}")
        while True:
            line = await reader.readline()
            if not line:
                break
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                done = True
                break
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(f"error in the stream: {event}")
            for choice in event["choices"]:
                text += choice.get("text") or choice.get("delta", {}).get("content") or ""
                reason = choice.get("finish_reason") or reason
            if on_chunk and on_chunk(text) is False:
                return text, None
        if not done:
            raise RuntimeError(f"the stream broke off after {len(text)} characters")
        return text, reason
    finally:
        writer.close()


async def metric(server, name):
    """The sum of a metric over its labels."""
    _, _, content = await request(server, "GET", "/metrics")
    total, found = 0.0, False
    for line in content.decode().splitlines():
        if re.match(rf"{re.escape(name)}(\{{|\s)", line):
            total, found = total + float(line.split()[-1]), True
    if not found:
        raise RuntimeError(f"no metric {name}")
    return total
