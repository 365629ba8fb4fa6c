// SPDX-License-Identifier: Apache-2.0
// `infos get` and `infos describe`: what infosd serves and what its workers do, as tables or JSON.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>

#include "daemon/cli/admin.h"
#include "daemon/cli/commands.h"
#include "daemon/cli/table.h"
#include "topology/base/units.h"
#include "topology/catalogue/catalogue.h"

namespace infos::cli {
namespace {

namespace json = boost::json;

/// What can be listed: the admin path, the list in its answer, and the columns as {title, member}.
struct Listing {
  const char* what;
  const char* target;
  const char* member;
  std::vector<std::pair<const char*, const char*>> columns;
};

const std::vector<Listing>& listings() {
  static const std::vector<Listing> all = {
      {"models",
       "/admin/v1/models",
       "models",
       {{"NAME", "name"},
        {"ROUTABLE", "routable"},
        {"SERVING", "workers_serving"},
        {"WORKERS", "workers"},
        {"SOURCE", "source"},
        {"FAILURE", "failure"}}},
      {"workers",
       "/admin/v1/workers",
       "workers",
       {{"ID", "worker"},
        {"MODEL", "model"},
        {"PHASE", "phase"},
        {"NODE", "node"},
        {"ROLE", "role"},
        {"DEVICE", "device"},
        {"PID", "pid"},
        {"RUNNING", "running"},
        {"WAITING", "waiting"},
        {"KV-USED", "kv_blocks_used"},
        {"KV-TOTAL", "kv_blocks_total"},
        {"RESTARTS", "restarts"}}},
      {"nodes",
       "/admin/v1/nodes",
       "nodes",
       {{"ID", "node"},
        {"NAME", "name"},
        {"STATE", "state"},
        {"ROLES", "roles"},
        {"ADDRESS", "address"},
        {"PLANNED", "planned"},
        {"RUNNING", "running"},
        {"PLAN", "plan"},
        {"DRAINED", "drained"},
        {"RTT", "round_trip"}}},
      {"plan",
       "/admin/v1/plan",
       "workers",
       {{"WORKER", "worker"},
        {"NODE", "node"},
        {"DEVICE", "device"},
        {"MODEL", "model"},
        {"ROLE", "role"},
        {"POOL", "pool"}}},
  };
  return all;
}

std::string table_of(const Listing& listing, const json::array& items) {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  for (const auto& column : listing.columns) head.emplace_back(column.first);
  for (const json::value& item : items) {
    auto& row = rows.emplace_back();
    for (const auto& column : listing.columns) {
      const std::string word = safe_for_terminal(word_of(item, column.second));
      row.push_back(word.empty() ? "-" : word);
    }
  }
  return print_table(head, rows);
}

std::string tera(double value) { return value == 0 ? "-" : fmt::format("{:.1f}", value / 1e12); }

json::value kinds_json() {
  json::array out;
  for (const DeviceKind& k : device_kinds())
    out.push_back({{"name", k.name},
                   {"vendor", k.vendor},
                   {"class", to_string(k.device_class)},
                   {"f32_flops", k.peaks.f32},
                   {"bf16_flops", k.peaks.bf16},
                   {"f8_flops", k.peaks.f8},
                   {"i8_ops", k.peaks.i8},
                   {"f4_flops", k.peaks.f4},
                   {"memory_bytes", k.memory.value},
                   {"memory_bytes_per_second", k.memory_bandwidth.bytes_per_second},
                   {"memory_efficiency", k.memory_efficiency},
                   {"peer_bytes_per_second", k.peer_link.bytes_per_second},
                   {"host_bytes_per_second", k.host_link.bytes_per_second},
                   {"watts", k.watts},
                   {"confidence", to_string(k.confidence)},
                   {"source", k.source}});
  return {{"device_kinds", std::move(out)}};
}

int get_kinds(Output output) {
  if (output == Output::json) return std::fputs(pretty(kinds_json()).c_str(), stdout), kDone;
  std::vector<std::vector<std::string>> rows;
  for (const DeviceKind& k : device_kinds())
    rows.push_back({std::string(k.name), to_string(k.device_class), to_human(k.memory),
                    fmt::format("{:.0f}", k.memory_bandwidth.bytes_per_second / 1e9),
                    tera(k.peaks.f32), tera(k.peaks.bf16), tera(k.peaks.i8), tera(k.peaks.f8),
                    fmt::format("{:.0f}", k.watts), to_string(k.confidence)});
  std::fputs(print_table({"NAME", "CLASS", "MEMORY", "GB/S", "F32-T", "BF16-T", "I8-T", "F8-T",
                          "WATTS", "FIGURES"},
                         rows)
                 .c_str(),
             stdout);
  return kDone;
}

/// "key: value" lines; objects and lists indented below.
void print_members(const json::object& object, std::size_t depth) {
  for (const auto& [key, value] : object) {
    const std::string indent(2 * depth, ' ');
    const std::string title(key);
    if (value.is_object()) {
      std::printf("%s%s:\n", indent.c_str(), title.c_str());
      print_members(value.as_object(), depth + 1);
    } else {
      const std::string word = safe_for_terminal(word_of(object, title));
      std::printf("%s%-*s %s\n", indent.c_str(), static_cast<int>(20 - 2 * depth),
                  (title + ":").c_str(), word.empty() ? "-" : word.c_str());
    }
  }
}

/// The item of `items` whose `member` is `wanted`.
const json::value* find_item(const json::array& items, const char* member,
                             const std::string& wanted) {
  for (const json::value& item : items)
    if (word_of(item, member) == wanted) return &item;
  return nullptr;
}

std::string names_of(const json::array& items, const char* member) {
  std::string out;
  for (const json::value& item : items) out += (out.empty() ? "" : ", ") + word_of(item, member);
  return out.empty() ? "there are none" : "there are: " + out;
}

}  // namespace

void describe_get(boost::program_options::options_description_easy_init add) {
  describe_output(add);
  describe_socket(add);
}

int run_get(const Invocation& given) {
  const Output output = INFOS_CLI_TRY(output_option(given));
  const std::string& what = given.words.at(0);
  if (what == "device-kinds") return get_kinds(output);
  for (const Listing& listing : listings()) {
    if (what != listing.what) continue;
    const auto answer = admin_get(given, listing.target);
    if (!answer.ok()) return complain(kFailed, answer.error());
    const std::string text = output == Output::json
                                 ? pretty(*answer)
                                 : table_of(listing, list_of(*answer, listing.member));
    std::fputs(text.c_str(), stdout);
    if (output == Output::table)
      for (const json::value& note : list_of(*answer, "notes"))
        if (note.is_string())
          std::printf("note: %s\n", safe_for_terminal(std::string(note.as_string())).c_str());
    return kDone;
  }
  return complain(
      kUsage, fmt::format("get '{}': want models, workers, nodes, plan or device-kinds", what.substr(0, 64)));
}

int run_describe(const Invocation& given) {
  const Output output = INFOS_CLI_TRY(output_option(given));
  const std::string& what = given.words.at(0);
  const std::string& name = given.words.at(1);
  const bool model = what == "model";
  if (!model && what != "worker")
    return complain(kUsage, fmt::format("describe '{}': want model or worker", what.substr(0, 64)));
  const auto workers = admin_get(given, "/admin/v1/workers");
  if (!workers.ok()) return complain(kFailed, workers.error());
  json::array items = list_of(*workers, "workers");
  if (model) {
    const auto models = admin_get(given, "/admin/v1/models");
    if (!models.ok()) return complain(kFailed, models.error());
    items = list_of(*models, "models");
  }
  const json::value* item = find_item(items, model ? "name" : "worker", name);
  if (!item)
    return complain(kFailed, fmt::format("no {} '{}'; {}", what, name.substr(0, 128),
                                         names_of(items, model ? "name" : "worker")));
  json::object shown = item->is_object() ? item->as_object() : json::object();
  if (model) {
    json::object its_workers;
    for (const json::value& worker : list_of(*workers, "workers"))
      if (word_of(worker, "model") == name)
        its_workers["worker " + word_of(worker, "worker")] = worker;
    shown["its_workers"] = std::move(its_workers);
  }
  if (output == Output::json) return std::fputs(pretty(shown).c_str(), stdout), kDone;
  print_members(shown, 0);
  return kDone;
}

}  // namespace infos::cli
