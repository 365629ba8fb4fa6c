// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/table.h"

#include <unistd.h>

#include <algorithm>

namespace infos::cli {
namespace {

/// Characters, not bytes: good enough for the Latin script.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string print_table(const std::vector<std::string>& head,
                        const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const std::string& cell : head) widths.push_back(width(cell));
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i)
      widths[i] = std::max(widths[i], width(row[i]));
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size() && i < widths.size(); ++i) {
      out += cells[i];
      if (i + 1 < cells.size()) out.append(widths[i] - width(cells[i]) + 2, ' ');
    }
    out += '\n';
  };
  line(head);
  for (const auto& row : rows) line(row);
  return out;
}

std::string safe_for_terminal(std::string_view text) {
  std::string out(text);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto c = static_cast<unsigned char>(out[i]);
    const bool control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
    // U+0080 to U+009F are control characters too.
    const bool upper =
        c == 0xC2 && i + 1 < out.size() && static_cast<unsigned char>(out[i + 1]) < 0xA0;
    if (control || upper) out[i] = '?';
    if (upper) out[i + 1] = '?';
  }
  return out;
}

bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

}  // namespace infos::cli
