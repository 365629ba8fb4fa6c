#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: infosd keeps its promises to the operator: clear refusals, applied specs that come back, bounded ends, no orphans.

Method: real processes with the 260k-parameter model; they are killed, stopped and asked through the admin socket. Every
wait is for a condition; the time limit is the test's.
"""
import asyncio
import http.client
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import harness  # noqa: E402

MODEL = harness.DATA / "models/stories260K-f32.gguf"
INFOSD = harness.BIN / "infosd"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def admin(server, method, path, body=None):
    connection = UnixConnection(server.admin)
    connection.request(method, "/admin/v1/" + path, body)
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, answer


def until(condition, what):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"never happened: {what}")


def run_infosd(*options):
    """Runs an infosd that is expected to refuse: (status, what it said)."""
    options = [str(option) for option in options]
    if "--listen" not in options:
        options += ["--listen", "127.0.0.1:0"]
    done = subprocess.run([str(INFOSD), *options], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def spec(name, source, more=""):
    return f"apiVersion: infos/v1\nkind: Model\nmetadata: {{name: {name}}}\nspec:\n  source: {source}\n{more}"


BODY = {"model": "m", "prompt": "Once upon a time", "max_tokens": 60, "temperature": 0, "ignore_eos": True}


def complete(server, **more):
    return asyncio.run(harness.complete(server, {**BODY, **more}))


def worker_phase(server):
    workers = admin(server, "GET", "workers")[1]["workers"]
    return workers[0]["phase"] if workers else None


class Infosd(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="infosd-test-")
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def serve(self, *options, models=True):
        server = harness.Server({"m": MODEL} if models else {}, *map(str, options))
        self.addCleanup(server.__exit__, None, None, None)
        if models:
            asyncio.run(harness.wait_ready(server))
        return server

    # ---- refusals

    def test_port_in_use_is_one_clear_sentence(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            status, said = run_infosd("--model", f"m={MODEL}", "--listen", address)
        self.assertEqual(status, 1)
        said = [line for line in said.splitlines() if line.startswith("infosd: ")]
        self.assertEqual(len(said), 1)
        self.assertIn(address, said[0])
        self.assertRegex(said[0], "in use")

    def test_wrong_options_name_what_is_allowed(self):
        for options, wanted in ((["--listen", "nowhere"], "ADDRESS:PORT"), (["--log-level", "loud"], "want debug"),
                                (["--model", "=x"], "NAME=PATH"), (["--colour", "red"], "colour"),
                                (["--model", "m=x", "--kv-transports", "pigeon"], "shm, tcp, ucx"), ([], "nothing to serve")):
            done = subprocess.run([str(INFOSD), *options], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, options)
            self.assertIn(wanted, done.stderr)

    def test_missing_model_is_named(self):
        status, said = run_infosd("--model", "m=/nonexistent/model.gguf")
        self.assertEqual(status, 1)
        self.assertIn("/nonexistent/model.gguf", said)

    def test_off_loopback_needs_insecure(self):
        status, said = run_infosd("--model", f"m={MODEL}", "--listen", "0.0.0.0:0")
        self.assertEqual(status, 1)
        self.assertIn("insecure", said)

    def test_second_infosd_on_a_state_file_is_refused(self):
        server = self.serve("--state", self.path("s.db"))
        status, said = run_infosd("--model", f"m={MODEL}", "--state", self.path("s.db"))
        self.assertEqual(status, 1)
        self.assertIn(f"in use by another infosd (pid {server.process.pid})", said)

    # ---- specs

    def test_admin_socket_is_private_and_tcp_has_no_admin_api(self):
        server = self.serve()
        self.assertEqual(stat.S_IMODE(os.stat(server.admin).st_mode), 0o600)
        self.assertEqual(asyncio.run(harness.request(server, "GET", "/admin/v1/workers"))[0], 404)
        self.assertEqual(admin(server, "GET", "models")[1]["models"][0]["routable"], True)

    def test_bad_spec_changes_nothing_and_names_every_place(self):
        server = self.serve()
        bad = spec("m", MODEL, "  colour: red\n  replicas: {min: many}\n")
        status, said = admin(server, "POST", "apply", bad)
        self.assertEqual(status, 400)
        self.assertIn("spec:6:", said["error"]["message"])
        self.assertIn("spec:7:", said["error"]["message"])
        status, said = admin(server, "POST", "apply", spec("n", "/nonexistent.gguf"))
        self.assertEqual(status, 400)
        self.assertIn("/nonexistent.gguf", said["error"]["message"])
        self.assertEqual([m["name"] for m in admin(server, "GET", "models")[1]["models"]], ["m"])
        self.assertEqual(admin(server, "GET", "workers")[1]["workers"][0]["generation"], 1)

    def test_applied_spec_comes_back_after_kill_9(self):
        server = self.serve("--state", self.path("s.db"))
        reference = complete(server)
        applied = spec("other", MODEL) + "---\n" + spec("m", MODEL, "  replicas: {min: 2, max: 2}\n")
        self.assertEqual(admin(server, "POST", "apply", applied)[0], 200)
        self.assertEqual(until(lambda: [m["workers_serving"] for m in admin(server, "GET", "models")[1]["models"]] == [1, 2],
                               "three workers serve"), True)
        server.process.kill()
        server.process.wait()
        again = self.serve("--state", self.path("s.db"), models=False)
        asyncio.run(harness.wait_ready(again))
        self.assertEqual(admin(again, "GET", "spec")[1], {"origin": "state", "spec": applied})
        self.assertEqual(until(lambda: all(m["routable"] for m in admin(again, "GET", "models")[1]["models"]), "ready"), True)
        self.assertEqual(complete(again, model="other"), reference)

    def test_one_node_serves_prefill_and_decode_pools(self):
        prompt = "Once upon a time there was a little girl who saw a big red dog in the park"
        reference = complete(self.serve(), prompt=prompt)
        with open(self.path("pd.yaml"), "w") as file:
            file.write(spec("m", MODEL, "  engine: {threads: 1}\n  pools:\n    - {phase: prefill, engine: {block_tokens: 8}}\n"
                                        "    - {phase: decode, tensor_parallel: 2, engine: {threads: 2}}\n"))
        server = self.serve("--config", self.path("pd.yaml"), "--decode-prefill-cost", "1e9", models=False)
        until(lambda: [w["role"] for w in admin(server, "GET", "workers")[1]["workers"] if w["phase"] == "serving"]
              == ["prefill", "decode"], "both workers serve")

        def kv_moved():
            self.assertEqual(complete(server, prompt=prompt), reference)
            traces = admin(server, "GET", "traces")[1]["traces"]
            return any("source" in span and span.get("bytes") for trace in traces for span in trace.get("spans", ()))
        until(kv_moved, "keys and values go from one to the other")

    def test_removed_model_is_no_longer_offered(self):
        server = self.serve()
        self.assertEqual(admin(server, "POST", "apply", spec("n", MODEL))[0], 200)
        until(lambda: len(server.worker_pids()) == 1 and admin(server, "GET", "models")[1]["models"][0]["routable"], "n serves")
        self.assertEqual(asyncio.run(harness.request(server, "POST", "/v1/completions", BODY))[0], 404)
        self.assertTrue(complete(server, model="n"))

    # ---- workers

    def test_vanished_model_file_is_a_failed_worker_with_its_reason(self):
        copy = self.path("copy.gguf")
        shutil.copy(MODEL, copy)
        server = harness.Server({"m": copy})
        self.addCleanup(server.__exit__, None, None, None)
        asyncio.run(harness.wait_ready(server))
        os.unlink(copy)
        os.kill(server.worker_pids()[0], signal.SIGKILL)
        until(lambda: worker_phase(server) == "failed", "the worker is given up")
        status, _, answer = asyncio.run(harness.request(server, "POST", "/v1/completions", BODY))
        self.assertEqual((status, json.loads(answer)["error"]["code"]), (503, "model_failed"))
        self.assertIn("copy.gguf", admin(server, "GET", "models")[1]["models"][0]["failure"])
        self.assertEqual(asyncio.run(harness.request(server, "GET", "/live"))[0], 200)
        self.assertEqual(asyncio.run(harness.request(server, "GET", "/ready"))[0], 503)

    def test_mended_model_file_is_served_after_the_same_spec_is_applied(self):
        copy = self.path("copy.gguf")
        server = harness.Server({}, "--state", self.path("state.db"))
        self.addCleanup(server.__exit__, None, None, None)
        shutil.copy(MODEL, copy)
        self.assertEqual(admin(server, "POST", "apply", spec("m", copy))[0], 200)
        asyncio.run(harness.wait_ready(server))
        os.unlink(copy)
        os.kill(server.worker_pids()[0], signal.SIGKILL)
        until(lambda: worker_phase(server) == "failed", "the worker is given up")
        shutil.copy(MODEL, copy)
        self.assertEqual(admin(server, "POST", "apply", spec("m", copy))[0], 200)
        asyncio.run(harness.wait_ready(server))
        os.unlink(copy)  # and when it is missing from the start
        server.process.kill()
        server.process.wait()
        server = harness.Server({}, "--state", self.path("state.db"))
        self.addCleanup(server.__exit__, None, None, None)
        shutil.copy(MODEL, copy)
        self.assertEqual(admin(server, "POST", "apply", spec("m", copy))[0], 200)
        asyncio.run(harness.wait_ready(server))
        self.assertTrue(complete(server))

    def test_stopped_worker_is_replaced_and_its_streams_go_on(self):
        server = self.serve("--silence-limit", "300ms")
        reference = complete(server)

        async def streams():
            stopped = False

            def on_chunk(_):
                nonlocal stopped
                if not stopped:
                    stopped = True
                    os.kill(server.worker_pids()[0], signal.SIGSTOP)
            texts = await asyncio.gather(*(harness.stream(server, BODY, on_chunk) for _ in range(8)))
            return stopped, {text for text, _ in texts}
        stopped, texts = asyncio.run(streams())
        self.assertTrue(stopped)
        self.assertEqual(texts, {reference})
        self.assertEqual(admin(server, "GET", "workers")[1]["workers"][0]["restarts"], 1)

    def test_killed_infosd_takes_its_workers_along(self):
        server = self.serve()
        pids = server.worker_pids()
        watches = [os.pidfd_open(pid) for pid in pids]
        server.process.kill()
        server.process.wait()
        for watch in watches:
            until(lambda w=watch: has_ended(w), "the worker ends")
            os.close(watch)

    # ---- the end

    def test_sigterm_with_nothing_to_do_exits_0_and_leaves_no_worker(self):
        server = self.serve()
        watch = os.pidfd_open(server.worker_pids()[0])
        server.process.terminate()
        self.assertEqual(server.process.wait(60), 0)
        self.assertTrue(has_ended(watch))
        os.close(watch)

    def test_request_that_never_ends_is_cut_at_the_drain_limit(self):
        server = self.serve("--drain-timeout", "300ms")
        os.kill(server.worker_pids()[0], signal.SIGSTOP)
        hanging = hang(server)
        server.process.terminate()
        self.assertEqual(server.process.wait(60), 0)
        hanging.close()

    def test_second_signal_ends_at_once(self):
        server = self.serve("--drain-timeout", "1000s")
        watch = os.pidfd_open(server.worker_pids()[0])
        os.kill(server.worker_pids()[0], signal.SIGSTOP)
        hanging = hang(server)
        server.process.terminate()
        until(lambda: asyncio.run(ready_status(server)) != 200, "it drains")
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(60), 128 + signal.SIGTERM)
        self.assertTrue(has_ended(watch))
        os.close(watch)
        hanging.close()

    def test_admin_drain_ends_the_process(self):
        server = self.serve()
        self.assertEqual(admin(server, "POST", "drain")[0], 202)
        self.assertEqual(server.process.wait(60), 0)

    # ---- recordings

    def test_recording_replays_to_the_same_hashes(self):
        server = self.serve("--record", self.path("r"))
        for seed in range(5):
            complete(server, seed=seed, temperature=1)
        os.kill(server.worker_pids()[0], signal.SIGKILL)
        until(lambda: worker_phase(server) == "serving"
              and admin(server, "GET", "workers")[1]["workers"][0]["generation"] == 2, "it is back")
        complete(server)
        server.process.terminate()
        self.assertEqual(server.process.wait(60), 0)
        files = [self.path("r"), self.path("r.worker-1.2")]
        check = os.environ["INFOS_REPLAY_CHECK"]
        done = subprocess.run([check, *files], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertTrue(os.path.exists(self.path("r.worker-1.1")))


def has_ended(watch):
    return bool(select.select([watch], [], [], 0)[0])


def hang(server):
    """A request that waits for a stopped worker."""
    connection = socket.create_connection((server.host, server.port))
    body = json.dumps(BODY).encode()
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
                       + str(len(body)).encode() + b"\r\n\r\n" + body)
    until(lambda: admin(server, "GET", "status")[1]["live_requests"] == 1, "the request is live")
    return connection


async def ready_status(server):
    try:
        return (await harness.request(server, "GET", "/ready"))[0]
    except OSError:
        return 0


if __name__ == "__main__":
    harness.need(str(MODEL))
    unittest.main(verbosity=2, warnings="ignore")  # the harness leaves a pipe to the collector
