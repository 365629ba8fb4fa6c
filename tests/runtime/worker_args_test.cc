// SPDX-License-Identifier: Apache-2.0
// Goal: a worker reads exactly what its supervisor wrote; wrong options are named. Method: round
// trip and a table.
#include "daemon/runtime/worker_args.h"

#include <gtest/gtest.h>

namespace infos {
namespace {

WorkerArgs example() {
  WorkerArgs args;
  args.socket_fd = 3;
  args.status_fd = 4;
  args.parent = 77;
  args.generation = Generation{5};
  args.spec = WorkerSpec{WorkerId{2},
                         "a model",
                         "/with space/and=equals",
                         "cpu",
                         {{"threads", "2"}, {"device_options", "isa=avx2"}}};
  args.record = "/tmp/r";
  args.log_format = "json";
  return args;
}

TEST(WorkerArgs, WrittenAndRead_AreEqual) {
  const WorkerArgs args = example();
  const WorkerArgs read = parse_worker_args(to_argv(args)).value();
  EXPECT_EQ(read.spec, args.spec);
  EXPECT_EQ(to_argv(read), to_argv(args));
}

TEST(WorkerArgs, MissingOrUnknownArguments_AreRefused) {
  std::vector<std::string> argv = to_argv(example());
  EXPECT_FALSE(parse_worker_args({"worker"}).ok());
  argv.insert(argv.end(), {"--colour", "red"});
  EXPECT_EQ(parse_worker_args(argv).error().message,
            "unknown argument '--colour' of infosd worker");
}

TEST(WorkerOptions, Known_ReachEngineAndCore) {
  const WorkerSettings settings = parse_worker_options({{"threads", "3"},
                                                        {"cores", "0-2,5"},
                                                        {"tensor_parallel", "2"},
                                                        {"kv_memory", "2GiB"},
                                                        {"kv_dtype", "f16"},
                                                        {"block_tokens", "32"},
                                                        {"max_running", "9"},
                                                        {"max_step_tokens", "100"}})
                                      .value();
  EXPECT_EQ(settings.engine.threads, 3u);
  EXPECT_EQ(settings.engine.cores, (std::vector<std::uint32_t>{0, 1, 2, 5}));
  EXPECT_EQ(settings.engine.tensor_parallel, 2u);
  EXPECT_EQ(settings.engine.kv_memory.value, 2ull << 30);
  EXPECT_EQ(settings.engine.kv_dtype, DType::f16);
  EXPECT_EQ(settings.engine.block_tokens, 32u);
  EXPECT_EQ(settings.core.block_tokens, 32u);
  EXPECT_EQ(settings.engine.max_sequences, 9u);
  EXPECT_EQ(settings.core.max_running, 9u);
  EXPECT_EQ(settings.core.max_step_tokens, 100u);
}

TEST(WorkerOptions, OfTransfers_FollowTheRoleUnlessTheyAreGiven) {
  using Kinds = std::vector<TransportKind>;
  EXPECT_EQ(parse_worker_options({{"role", "aggregated"}})->links.kinds, Kinds{});
  EXPECT_EQ(parse_worker_options({{"role", "decode"}})->links.kinds,
            (Kinds{TransportKind::shm, TransportKind::tcp}));
  EXPECT_EQ(parse_worker_options({{"role", "decode"}, {"kv_transports", "none"}})->links.kinds,
            Kinds{});
  const WorkerSettings settings = parse_worker_options({{"role", "prefill"},
                                                        {"kv_transports", "verbs,tcp"},
                                                        {"kv_listen", "10.0.0.1"},
                                                        {"kv_tls_key", "key.pem"},
                                                        {"numerics", "bounded"},
                                                        {"epoch", "7"}})
                                      .value();
  EXPECT_EQ(settings.role, WorkerRole::prefill);
  EXPECT_EQ(settings.links.kinds, (Kinds{TransportKind::verbs, TransportKind::tcp}));
  EXPECT_EQ(settings.links.listen, "10.0.0.1");
  EXPECT_EQ(settings.links.tls_key, "key.pem");
  EXPECT_EQ(settings.numerics, KvPolicy::bounded);
  EXPECT_EQ(settings.epoch, Epoch{7});
}

TEST(WorkerOptions, Wrong_AreNamedWithWhatIsAllowed) {
  const std::pair<const char*, const char*> wrong[] = {
      {"threads", "many"},         {"block_tokens", "0"}, {"cores", "3-1"},
      {"kv_memory", "2"},          {"kv_dtype", "i8"},    {"colour", "red"},
      {"tensor_parallel", "0"},    {"role", "both"},      {"numerics", "fast"},
      {"kv_transports", "pigeon"}, {"epoch", "-1"}};
  for (const auto& [key, value] : wrong) {
    const auto settings = parse_worker_options({{key, value}});
    ASSERT_FALSE(settings.ok()) << key;
    EXPECT_EQ(settings.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(settings.error().message.find(value == std::string("red") ? key : value),
              std::string::npos)
        << settings.error().message;
  }
}

}  // namespace
}  // namespace infos
