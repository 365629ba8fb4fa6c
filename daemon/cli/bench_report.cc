// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "daemon/cli/table.h"

namespace infos::cli {
namespace {

namespace json = boost::json;

double ms(Duration d) { return static_cast<double>(d.ns) * 1e-6; }

bool meets(const Sample& sample, const Slo& slo) {
  if (slo.ttft && sample.ttft > *slo.ttft) return false;
  return !slo.tpot || sample.tpot() <= *slo.tpot;
}

/// Three digits, no more decimals than needed.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double scale = std::pow(10, 3 - std::floor(std::log10(std::abs(value))));
  return scale < 1 ? std::round(value) : std::round(value * scale) / scale;
}

json::object spread_json(const Spread& s) {
  return {{"mean", rounded(s.mean)}, {"p50", rounded(s.p50)}, {"p90", rounded(s.p90)},
          {"p95", rounded(s.p95)},   {"p99", rounded(s.p99)}, {"max", rounded(s.max)}};
}

std::vector<std::string> spread_row(const char* name, const Spread& s) {
  std::vector<std::string> out{name};
  for (const double value : {s.mean, s.p50, s.p90, s.p95, s.p99, s.max})
    out.push_back(value < 10 ? fmt::format("{:.2f}", value) : fmt::format("{:.1f}", value));
  return out;
}

void add_answered(Report& report, const Sample& sample) {
  ++report.answered;
  report.prompt_tokens += sample.prompt_tokens;
  report.cached_tokens += sample.cached_tokens;
  report.output_tokens += sample.output_tokens;
  report.chunks += sample.chunks;
}

}  // namespace

Duration Sample::tpot() const {
  if (output_tokens < 2) return {};
  return Duration{(last - ttft).ns / static_cast<std::int64_t>(output_tokens - 1)};
}

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto rank = [&](double percent) {
    const double n = std::ceil(percent / 100 * static_cast<double>(values.size()) - 1e-9);
    return values[static_cast<std::size_t>(std::max(n, 1.0)) - 1];
  };
  double sum = 0;
  for (const double value : values) sum += value;
  return {sum / static_cast<double>(values.size()),
          rank(50),
          rank(90),
          rank(95),
          rank(99),
          values.back()};
}

Report make_report(const std::vector<Sample>& samples, std::vector<double> gaps_ms,
                   const Slo& slo) {
  Report report;
  report.has_slo = slo.ttft || slo.tpot;
  std::vector<double> ttft, tpot, total;
  std::uint64_t good = 0;
  Duration first{INT64_MAX}, last{0};
  for (const Sample& sample : samples) {
    if (sample.warm_up) {
      ++report.warm_up;
      continue;
    }
    ++report.requests;
    first = std::min(first, sample.start);
    last = std::max(last, sample.start + sample.total);
    if (!sample.error.empty()) {
      ++report.failed;
      ++report.errors[sample.error];
      continue;
    }
    add_answered(report, sample);
    if (meets(sample, slo)) ++good;
    ttft.push_back(ms(sample.ttft));
    total.push_back(ms(sample.total));
    if (sample.output_tokens > 1) tpot.push_back(ms(sample.tpot()));
  }
  if (report.requests > 0) {
    report.seconds = std::max((last - first).seconds(), 1e-9);
    report.requests_per_second = static_cast<double>(report.answered) / report.seconds;
    report.output_tokens_per_second = static_cast<double>(report.output_tokens) / report.seconds;
    report.prompt_tokens_per_second = static_cast<double>(report.prompt_tokens) / report.seconds;
    report.goodput = static_cast<double>(good) / report.seconds;
    report.met_slo = static_cast<double>(good) / static_cast<double>(report.requests);
  }
  report.ttft_ms = spread_of(std::move(ttft));
  report.tpot_ms = spread_of(std::move(tpot));
  report.total_ms = spread_of(std::move(total));
  report.gap_ms = spread_of(std::move(gaps_ms));
  return report;
}

json::object report_json(const Report& r) {
  json::object errors;
  for (const auto& [message, n] : r.errors) errors[message] = n;
  json::object out{{"requests", r.requests},
                   {"answered", r.answered},
                   {"failed", r.failed},
                   {"warm_up", r.warm_up},
                   {"errors", std::move(errors)},
                   {"seconds", rounded(r.seconds)},
                   {"requests_per_second", rounded(r.requests_per_second)},
                   {"output_tokens_per_second", rounded(r.output_tokens_per_second)},
                   {"prompt_tokens_per_second", rounded(r.prompt_tokens_per_second)},
                   {"prompt_tokens", r.prompt_tokens},
                   {"cached_tokens", r.cached_tokens},
                   {"output_tokens", r.output_tokens},
                   {"chunks", r.chunks},
                   {"ttft_ms", spread_json(r.ttft_ms)},
                   {"tpot_ms", spread_json(r.tpot_ms)},
                   {"gap_ms", spread_json(r.gap_ms)},
                   {"total_ms", spread_json(r.total_ms)}};
  if (r.has_slo) {
    out["goodput_requests_per_second"] = rounded(r.goodput);
    out["met_slo"] = rounded(r.met_slo);
  }
  return out;
}

std::string report_table(const Report& r) {
  std::string out =
      fmt::format("{} answered, {} failed in {:.2f} s", r.answered, r.failed, r.seconds);
  if (r.warm_up > 0) out += fmt::format(" (after {} to warm up)", r.warm_up);
  out += fmt::format(
      "\n{:.2f} requests/s, {:.1f} output tokens/s, {:.1f} prompt tokens/s ({} of {} cached)\n",
      r.requests_per_second, r.output_tokens_per_second, r.prompt_tokens_per_second,
      r.cached_tokens, r.prompt_tokens);
  if (r.has_slo)
    out += fmt::format("goodput {:.2f} requests/s: {:.1f} % met the SLO\n", r.goodput,
                       100 * r.met_slo);
  if (r.answered > 0)
    out += "\n" +
           print_table(
               {"ms", "MEAN", "P50", "P90", "P95", "P99", "MAX"},
               {spread_row("first token", r.ttft_ms), spread_row("per token after", r.tpot_ms),
                spread_row("between chunks", r.gap_ms), spread_row("whole answer", r.total_ms)});
  for (const auto& [message, n] : r.errors)
    out += fmt::format("{} x {}\n", n, safe_for_terminal(message));
  return out;
}

}  // namespace infos::cli
