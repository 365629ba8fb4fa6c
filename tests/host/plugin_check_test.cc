// SPDX-License-Identifier: Apache-2.0
// Goal: the conformance suite passes a sound backend and finds each fault of an unsound one.
// Method: the reference backend as it is, and the same with one function replaced by a faulty one;
// the CPU plugin when it was built.
#include "devices/host/conformance/plugin_check.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "devices/engine/reference/backend.h"
#include "devices/host/plugin.h"

namespace infos {
namespace {

infos_plugin_api g_sound;  // the reference's table, for the faulty functions to fall back on

infos_code sound_table(infos_plugin_api* out) {
  infos_host_api host{sizeof(infos_host_api), INFOS_ABI_VERSION, nullptr, nullptr};
  g_sound.struct_size = sizeof g_sound;
  reference::plugin_query(INFOS_ABI_VERSION, &host, &g_sound, nullptr);
  const std::uint32_t n = std::min<std::uint32_t>(out->struct_size, sizeof g_sound);
  std::memcpy(out, &g_sound, n);
  out->struct_size = n;
  return INFOS_OK;
}

#define FAULTY(name, assignment)                                                                  \
  infos_code name(std::uint32_t abi, const infos_host_api* host, infos_plugin_api* out,           \
                  infos_error* e) {                                                               \
    if (host == nullptr || abi < 1 || abi > 2) return reference::plugin_query(abi, host, out, e); \
    sound_table(out);                                                                             \
    assignment;                                                                                   \
    return INFOS_OK;                                                                              \
  }

infos_code nothing_refused(infos_program* p, infos_kv* kv, const infos_batch* b, infos_error* e) {
  const infos_code code = g_sound.execute(p, kv, b, e);
  return code == INFOS_INVALID && p != nullptr ? INFOS_OK : code;
}
infos_code depends_on_batch(infos_program* p, infos_kv* kv, const infos_batch* b, infos_error* e) {
  const infos_code code = g_sound.execute(p, kv, b, e);
  if (code == INFOS_OK && b->n_tokens > 3 && b->n_logit_rows > 0) b->logits[0] *= 1.000001F;
  return code;
}
infos_code wrong_logits(infos_program* p, infos_kv* kv, const infos_batch* b, infos_error* e) {
  const infos_code code = g_sound.execute(p, kv, b, e);
  if (code == INFOS_OK && b->n_logit_rows > 0)
    b->logits[82] = 0;  // the end of a row, as a tail loop would forget it
  return code;
}
infos_code no_deadline(infos_program* p, infos_kv* kv, const infos_batch* b, infos_error* e) {
  if (b == nullptr) return g_sound.execute(p, kv, b, e);
  infos_batch other = *b;
  other.deadline_ns = 0;
  return g_sound.execute(p, kv, &other, e);
}
infos_code crashes(infos_device* d, infos_health* h, infos_error* e) {
  if (d == nullptr) {
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
  }
  return g_sound.health(d, h, e);
}
infos_code believes(infos_device* d, const void*, std::uint64_t, std::uint32_t* c, infos_error* e) {
  if (d == nullptr) return g_sound.artifact_compat(d, nullptr, 0, c, e);
  *c = INFOS_COMPAT_OPTIMAL;
  return INFOS_OK;
}
infos_code hangs(infos_job*, std::uint32_t*, double*, infos_error*) {
  for (;;) pause();
}
infos_code any_pool(infos_device* d, const infos_kv_config* c, infos_kv** out, infos_error* e) {
  if (d == nullptr || c == nullptr || c->layers != 0) return g_sound.kv_create(d, c, out, e);
  infos_kv_config other = *c;
  other.layers = 1;
  return g_sound.kv_create(d, &other, out, e);
}
infos_code own_memory(infos_device* d, const infos_kv_config* c, infos_kv** out, infos_error* e) {
  if (d == nullptr || c == nullptr) return g_sound.kv_create(d, c, out, e);
  infos_kv_config other = *c;
  if (c->struct_size == sizeof other && c->allocate != nullptr)
    other.allocate(c->allocate_context, 1), other.allocate = nullptr;
  return g_sound.kv_create(d, &other, out, e);
}
infos_code close_rows(infos_program* p, infos_kv* kv, const infos_batch* b, infos_error* e) {
  if (b == nullptr || b->struct_size < sizeof *b) return g_sound.execute(p, kv, b, e);
  infos_batch other = *b;
  other.logits_stride = 0;
  return g_sound.execute(p, kv, &other, e);
}
infos_code done_early(infos_program* p, infos_kv* kv, const infos_batch* b, infos_error* e) {
  if (b == nullptr || b->struct_size < sizeof *b || b->layer_done == nullptr)
    return g_sound.execute(p, kv, b, e);
  infos_batch other = *b;
  other.layer_done = nullptr;
  for (std::uint32_t layer = 0; layer < 2; ++layer) b->layer_done(b->layer_context, layer);
  return g_sound.execute(p, kv, &other, e);
}
infos_code overruns(std::uint32_t index, infos_device_info* out, infos_error* e) {
  if (out == nullptr) return g_sound.describe(index, out, e);
  out->struct_size = sizeof *out;
  return g_sound.describe(index, out, e);
}

FAULTY(q_nothing_refused, out->execute = nothing_refused)
FAULTY(q_depends_on_batch, out->execute = depends_on_batch)
FAULTY(q_wrong_logits, out->execute = wrong_logits)
FAULTY(q_no_deadline, out->execute = no_deadline)
FAULTY(q_crashes, out->health = crashes)
FAULTY(q_believes, out->artifact_compat = believes)
FAULTY(q_hangs, out->compile_poll = hangs)
FAULTY(q_any_pool, out->kv_create = any_pool)
FAULTY(q_own_memory, out->kv_create = own_memory)
FAULTY(q_close_rows, out->execute = close_rows)
FAULTY(q_done_early, out->execute = done_early)
FAULTY(q_overruns, out->describe = overruns)
FAULTY(q_hole, out->load = nullptr)

TEST(PluginCheck, Reference_PassesEveryCheck) {
  register_plugin("reference", &reference::plugin_query);
  const PluginReport report = check_plugin("reference");
  EXPECT_TRUE(report.ok()) << report.text();
  EXPECT_EQ(report.checks.size(), 22U);
  EXPECT_NE(report.text().find(" 0 skipped"), std::string::npos) << report.text();
}

TEST(PluginCheck, FaultyBackend_FailsTheCheckOfItsFault) {
  const struct {
    PluginQuery query;
    const char* check;
    const char* detail;
  } faults[] = {
      {q_nothing_refused, "hostile batches", "no tokens"},
      {q_depends_on_batch, "do not depend on its batch", "differs"},
      {q_wrong_logits, "of every family", "logits differ"},
      {q_no_deadline, "deadlines", "INFOS_DEADLINE"},
      {q_crashes, "null arguments", "crashed"},
      {q_believes, "damaged and foreign", "cut to 0 bytes"},
      {q_hangs, "serialise says", "no end within 500ms"},
      {q_any_pool, "KV pools", "field 1"},
      {q_own_memory, "in the host's memory", "elsewhere"},
      {q_close_rows, "ranks sum", "row 0 value 83"},
      {q_done_early, "called done once", "held nothing"},
      {q_overruns, "out structs", "beyond the room"},
      {q_hole, "the plugin loads", "'load'"},
  };
  int number = 0;
  for (const auto& fault : faults) {
    const std::string name = "faulty" + std::to_string(number++);
    register_plugin(name, fault.query);
    PluginCheckOptions options;
    options.only = fault.check;
    if (fault.query == q_hangs) options.deadline = milliseconds(500);
    const PluginReport report = check_plugin(name, options);
    ASSERT_EQ(report.checks.size(), 1U) << fault.check;
    EXPECT_FALSE(report.ok()) << fault.check;
    EXPECT_NE(report.text().find(fault.detail), std::string::npos) << report.text();
  }
}

TEST(PluginCheck, PluginThatIsNotThere_IsOneFailure) {
  const PluginReport report = check_plugin("/nowhere/libinfos_none.so");
  ASSERT_EQ(report.checks.size(), 1U);
  EXPECT_NE(report.text().find("/nowhere/libinfos_none.so"), std::string::npos);
}

TEST(PluginCheck, CpuPlugin_PassesEveryCheckOnEveryInstructionSetOfThisMachine) {
  if (!std::filesystem::exists(plugin_search_paths("cpu").back()))
    GTEST_SKIP() << "the CPU plugin is not built here";
  int ran = 0;
  for (const char* isa : {"generic", "avx2", "avxvnni", "avx512"}) {
    PluginCheckOptions options;
    options.device_options = std::string("isa=") + isa;
    options.only = "deadlines";  // a short one, to see whether this machine has it
    if (check_plugin("cpu", options).text().find("this machine lacks it") != std::string::npos)
      continue;
    options.only.clear();
    const PluginReport report = check_plugin("cpu", options);
    EXPECT_TRUE(report.ok()) << isa << "\n" << report.text();
    ++ran;
  }
  EXPECT_GE(ran, 1);
}

}  // namespace
}  // namespace infos
