// SPDX-License-Identifier: Apache-2.0
// `infos trace`: the last requests, or one request's time drawn as bars.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

#include "daemon/cli/admin.h"
#include "daemon/cli/commands.h"
#include "daemon/cli/table.h"
#include "topology/base/units.h"

namespace infos::cli {
namespace {

namespace json = boost::json;

constexpr std::size_t kBarWidth = 40;

double number_of(const json::value& object, const char* member) {
  const json::object* o = object.if_object();
  const json::value* v = o ? o->if_contains(member) : nullptr;
  if (!v || !v->is_number()) return 0;
  const double number = v->to_number<double>();
  return std::isfinite(number) ? number : 0;
}

std::string milliseconds_text(double seconds) {
  return fmt::format("{:.{}f} ms", seconds * 1e3, seconds < 0.1 ? 2 : 1);
}

std::string name_of(const json::value& trace) {
  const std::string id = word_of(trace, "request_id");
  return id.empty() ? word_of(trace, "request") : id;
}

int list_traces(const json::value& answer) {
  std::vector<std::vector<std::string>> rows;
  for (const json::value& trace : list_of(answer, "traces"))
    rows.push_back({safe_for_terminal(name_of(trace)), safe_for_terminal(word_of(trace, "model")),
                    word_of(trace, "outcome"), word_of(trace, "prompt_tokens"),
                    word_of(trace, "tokens"), word_of(trace, "attempts"),
                    milliseconds_text(number_of(trace, "seconds")),
                    fmt::format("{:.0f} s ago", number_of(trace, "age_seconds"))});
  std::fputs(
      print_table({"REQUEST", "MODEL", "OUTCOME", "PROMPT", "TOKENS", "ATTEMPTS", "TOOK", "BEGAN"},
                  rows)
          .c_str(),
      stdout);
  return kDone;
}

/// One line: what, when, how long, a bar on the request's time line.
void print_line(const std::string& what, double begin, double took, double whole,
                const std::string& note) {
  const double scale = whole > 0 ? kBarWidth / whole : 0;
  const auto from =
      std::min<std::size_t>(static_cast<std::size_t>(std::max(begin, 0.0) * scale), kBarWidth - 1);
  const std::size_t length = std::clamp<std::size_t>(
      static_cast<std::size_t>(std::lround(std::max(took, 0.0) * scale)), 1, kBarWidth - from);
  std::string bar(from, ' ');
  for (std::size_t i = 0; i < length; ++i) bar += "█";
  bar.append(kBarWidth - from - length, ' ');
  std::printf("  %-14s %10s %10s  |%s|  %s\n", what.c_str(), milliseconds_text(begin).c_str(),
              milliseconds_text(took).c_str(), bar.c_str(), note.c_str());
}

std::string note_of(const json::value& span) {
  std::string note;
  const auto add = [&](const std::string& text) { note += (note.empty() ? "" : ", ") + text; };
  if (const std::string worker = word_of(span, "worker"); !worker.empty()) add("worker " + worker);
  if (const std::string source = word_of(span, "source"); !source.empty())
    add("from worker " + source);
  if (const double bytes = number_of(span, "bytes"); bytes > 0)
    add(to_human(Bytes{static_cast<std::uint64_t>(bytes)}));
  if (const std::string tokens = word_of(span, "tokens"); !tokens.empty()) add(tokens + " tokens");
  if (const double waited = number_of(span, "waited_seconds"); waited > 0)
    add("waited " + milliseconds_text(waited) + " for the source");
  return note;
}

void print_trace(const json::value& trace) {
  const bool runs = word_of(trace, "outcome") == "running";
  const double whole = number_of(trace, runs ? "age_seconds" : "seconds");
  std::printf("request %s  model %s  %s after %s, %s prompt tokens (%s cached), %s tokens, %s %s\n",
              safe_for_terminal(name_of(trace)).c_str(),
              safe_for_terminal(word_of(trace, "model")).c_str(), word_of(trace, "outcome").c_str(),
              milliseconds_text(whole).c_str(), word_of(trace, "prompt_tokens").c_str(),
              word_of(trace, "cached_tokens").c_str(), word_of(trace, "tokens").c_str(),
              word_of(trace, "attempts").c_str(),
              word_of(trace, "attempts") == "1" ? "attempt" : "attempts");
  std::printf("  %-14s %10s %10s\n", "", "BEGAN", "TOOK");
  for (const json::value& span : list_of(trace, "spans")) {
    const double begin = number_of(span, "begin_seconds");
    const bool over = span.is_object() && span.as_object().contains("seconds");
    print_line(word_of(span, "kind"), begin, over ? number_of(span, "seconds") : whole - begin,
               whole, note_of(span) + (over ? "" : " (goes on)"));
    double before = 0;
    std::size_t layer = 0;
    for (const json::value& landed : list_of(span, "layers_landed_seconds")) {
      const double at = landed.is_number() ? landed.to_number<double>() : 0;
      print_line(fmt::format("  layer {}", layer++), begin + before, at - before, whole, "");
      before = std::max(before, at);
    }
  }
}

}  // namespace

void describe_trace(boost::program_options::options_description_easy_init add) {
  describe_output(add);
  describe_socket(add);
}

int run_trace(const Invocation& given) {
  const Output output = INFOS_CLI_TRY(output_option(given));
  const bool all = given.words.empty();
  if (!all) {
    const std::string& name = given.words[0];
    const bool plain =
        !name.empty() && name.size() <= 128 && std::ranges::all_of(name, [](unsigned char c) {
          return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
        });
    if (!plain)
      return complain(kUsage, fmt::format("trace '{}': want the id of an answer or its "
                                          "x-request-id (letters, digits, '-', '_', '.')",
                                          safe_for_terminal(name.substr(0, 64))));
  }
  const auto answer =
      admin_get(given, all ? "/admin/v1/traces" : "/admin/v1/traces/" + given.words[0]);
  if (!answer.ok()) return complain(kFailed, answer.error());
  if (output == Output::json) return std::fputs(pretty(*answer).c_str(), stdout), kDone;
  if (all) return list_traces(*answer);
  for (const json::value& trace : list_of(*answer, "traces")) print_trace(trace);
  return kDone;
}

}  // namespace infos::cli
