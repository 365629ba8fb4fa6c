// SPDX-License-Identifier: Apache-2.0
// The table of commands. A new command: its file, its line in commands.h and its entry here.
#include "daemon/cli/commands.h"

namespace infos::cli {

const std::vector<Command>& commands() {
  using Listed = Command::Listed;
  static const std::vector<Command> table = {
      {"up",
       "serve models on this machine, in the foreground",
       "",
       R"(examples:
  infos up                                        the demo model on http://127.0.0.1:8080
  infos up --model llama=/models/llama-8b.gguf    a model of yours
  infos up --config node.yaml --state infos.db    what a spec says, kept over restarts)",
       0,
       0,
       {},
       describe_up,
       run_up},
      {"init",
       "make a cluster, with this machine as its first node",
       "--name NAME",
       R"(Makes the cluster's authority and the identity of node 1: controller, gateway and worker.
The folder holds private keys: keep ca.key safe, whoever has it can make nodes.
example:
  infos init --name lab --listen 10.0.0.1:7400)",
       0,
       0,
       {},
       describe_init,
       run_init},
      {"token create",
       "let one more machine join; prints the command to run there",
       "",
       R"(A token is good for one machine, once. Run this where the controller's infosd runs.
example:
  infos token create --roles gateway,worker --ttl 1h)",
       0,
       0,
       {},
       describe_token_create,
       run_token_create},
      {"token list",
       "list the tokens that are there, without their secrets",
       "",
       "",
       0,
       0,
       {},
       describe_token,
       run_token_list},
      {"token revoke",
       "make a token useless",
       "ID",
       "",
       1,
       1,
       {},
       describe_token,
       run_token_revoke},
      {"join",
       "let this machine join a cluster",
       "HOST:PORT --token TOKEN --ca-hash sha256:HEX",
       R"(`infos token create` on the controller prints this command. The token goes only to a controller that proves
to belong to the authority with that hash.
example:
  infos join 10.0.0.1:7400 --token 0123456789abcdef... --ca-hash sha256:...)",
       1,
       1,
       {},
       describe_join,
       run_join},
      {"apply",
       "change what infosd serves to what spec files say",
       "[-f] FILE...",
       R"(All errors in the files are said at once, as file:line:column; then nothing is changed.
infosd may refuse what --check lets pass: a model that is not there, what it cannot serve yet.
The keys of a spec: docs/spec-reference.md.)",
       0,
       1024,
       {},
       describe_apply,
       run_apply},
      {"drain",
       "take the workers of a node or model out of service, or back",
       "node NAME | model NAME",
       R"(What runs there may end or goes on elsewhere; no answer is lost. Any node of the cluster may be asked.
example:
  infos drain node n3
  infos drain node n3 --undo)",
       2,
       2,
       {"node", "model"},
       describe_drain,
       run_drain},
      {"get",
       "list models, workers, nodes, the plan or known device kinds",
       "models|workers|nodes|plan|device-kinds",
       "",
       1,
       1,
       {"models", "workers", "nodes", "plan", "device-kinds"},
       describe_get,
       run_get},
      {"describe",
       "everything about one model or worker",
       "model NAME | worker ID",
       "",
       2,
       2,
       {"model", "worker"},
       describe_get,
       run_describe},
      {"trace",
       "where the time of a request went: queue, prefill, KV layer by layer, decode",
       "[REQUEST]",
       R"(REQUEST is the x-request-id of the answer or its id ("chatcmpl-..."). Without one, the last
requests are listed. What ended long ago is forgotten; `infosd --otlp URL` keeps traces elsewhere.)",
       0,
       1,
       {},
       describe_trace,
       run_trace},
      {"chat",
       "ask a model in the terminal",
       "[MODEL] [MESSAGE]",
       R"(One word that is a model's name is the model, otherwise it is the message.
Without a message, lines are read.
examples:
  infos chat                              a conversation with the first model
  infos chat "Tell me a story"            one question)",
       0,
       2,
       {},
       describe_chat,
       run_chat},
      {"bench",
       "measure a server under load",
       "",
       R"(Closed loop: --concurrency N requests are always in flight. Open loop: --rate R requests a second
arrive (Poisson), or as a --trace says, whether earlier ones are answered or not.
Trace files: CSV or JSON lines with an arrival time, prompt tokens and output tokens (the Azure, Mooncake and
LLMServingSim forms are known).
examples:
  infos bench --concurrency 16 --requests 200 --prompt-tokens 256 --output-tokens 128
  infos bench --rate 4 --duration 60s --slo-ttft 300ms --slo-tpot 30ms -o json)",
       0,
       0,
       {},
       describe_bench,
       run_bench},
      {"bench kv",
       "measure the transports that move KV caches",
       "",
       R"(Two processes of this host; every byte is cold. The machine's own limits (copy loops, a bare TCP
loop) and, when it is installed, ucx_perftest are measured in the same run.
example:
  infos bench kv --transport tcp --size 4KiB,1MiB --depth 1,16 -o json)",
       0,
       0,
       {},
       describe_bench_kv,
       run_bench_kv},
      {"doctor",
       "find what is wrong with this machine",
       "",
       "Exit code 1 when something must be mended.",
       0,
       0,
       {},
       describe_doctor,
       run_doctor},
      {"model inspect",
       "what a model's files hold, and what serving it takes",
       "PATH",
       "",
       1,
       1,
       {},
       describe_model_inspect,
       run_model_inspect},
      {"model synth",
       "write a model of real shape with random weights, for benchmarks",
       "--shape NAME --dtype TYPE -o FILE",
       "example:\n  infos model synth --shape qwen2.5-0.5b --dtype q8_0 -o /tmp/qwen.gguf",
       0,
       0,
       {},
       describe_model_synth,
       run_model_synth},
      {"plugin check",
       "test whether a backend keeps the device contract",
       "NAME|FILE.so",
       "",
       1,
       1,
       {},
       describe_plugin_check,
       run_plugin_check},
      {"simulate",
       "run the daemon's decisions in a modelled world",
       "[--fuzz | --replay FILE]",
       R"(Without --fuzz and --replay: one healthy run, for its figures.
The same options give the same figures and the same hash.
examples:
  infos simulate --workers 4 --rate 50 --requests 10000
  infos simulate --fuzz --seeds 1000
  infos simulate --replay infosd.recording)",
       0,
       0,
       {},
       describe_simulate,
       run_simulate},
      {"completion",
       "print a completion script for a shell",
       "bash|zsh|fish",
       R"(Load it with, for bash: source <(infos completion bash))",
       1,
       1,
       {"bash", "zsh", "fish"},
       nullptr,
       run_completion},
      {"version", "print the version", "", "", 0, 0, {}, describe_version, run_version},
      {"spec-reference",
       "print docs/spec-reference.md",
       "",
       "",
       0,
       0,
       {},
       nullptr,
       run_spec_reference,
       Listed::no},
  };
  return table;
}

}  // namespace infos::cli
