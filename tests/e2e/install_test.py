#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: what `cmake --install` lays down is enough: moved elsewhere, `bin/infos up` answers with its own plugin and model.

Method: installs the build folder given as argument under a temporary prefix, renames that, starts it with none of our
environment variables and asks one question.
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import harness  # noqa: E402

FILES = ("bin/infos", "bin/infosd", "lib/infos/libinfos_cpu.so", "share/infos/infos-demo.gguf",
         "include/infos/infos_device.h", "lib/systemd/system/infosd.service", "share/doc/infos/LICENSE",
         "share/doc/infos/examples/single-node.yaml")


class Up:
    """`infos up` on a free port, with what the harness needs to ask it."""

    def __init__(self, program, folder):
        env = {k: v for k, v in os.environ.items() if not k.startswith("INFOS_")}
        self.log = open(folder / "log", "w+")
        self.process = subprocess.Popen([program, "up", "--port", "0"], stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        cwd=folder, env=env)
        for line in self.process.stdout:
            match = re.search(r"http://([\d.]+):(\d+)", line)
            if match:
                self.host, self.port = match.group(1), int(match.group(2))
                return
        raise RuntimeError(f"infos did not start:\n{self.logs()}")

    def logs(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text()


async def ask(server):
    await harness.wait_ready(server)
    _, _, models = await harness.request(server, "GET", "/v1/models")
    body = {"model": json.loads(models)["data"][0]["id"], "messages": [{"role": "user", "content": "What is infos?"}],
            "temperature": 0}
    return await harness.complete(server, body, "/v1/chat/completions")


def main():
    build = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="infos-install-") as name:
        folder = pathlib.Path(name)
        subprocess.run(["cmake", "--install", build, "--prefix", folder / "first"], check=True, stdout=subprocess.DEVNULL)
        missing = [file for file in FILES if not (folder / "first" / file).is_file()]
        assert not missing, f"not installed: {missing}"
        unit = (folder / "first/lib/systemd/system/infosd.service").read_text()
        assert f"ExecStart={folder}/first/bin/infosd " in unit, unit
        (folder / "first").rename(folder / "moved")
        server = Up(folder / "moved/bin/infos", folder)
        try:
            answer = asyncio.run(ask(server))
            print(f"answer: {answer}")
            assert answer.strip(), "an empty answer"
        finally:
            server.process.send_signal(signal.SIGINT)
            status = server.process.wait(60)
            server.process.stdout.close()
            server.log.close()
        assert status in (0, 130), f"infos up ended with {status}"


if __name__ == "__main__":
    main()
