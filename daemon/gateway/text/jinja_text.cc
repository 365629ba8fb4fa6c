// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/text/jinja_text.h"

#include <algorithm>

#include "daemon/gateway/text/jinja_runtime.h"

namespace infos::text::jinja {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80;
}
char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool more(std::int64_t limit, std::size_t cuts) {
  return limit < 0 || static_cast<std::int64_t>(cuts) < limit;
}

}  // namespace

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       std::int64_t limit) {
  std::vector<std::string_view> out;
  std::size_t at = 0;
  while (more(limit, out.size())) {
    const std::size_t hit = text.find(separator, at);
    if (hit == std::string_view::npos) break;
    out.push_back(text.substr(at, hit - at));
    at = hit + separator.size();
  }
  out.push_back(text.substr(at));
  return out;
}

std::vector<std::string_view> split_at_from_right(std::string_view text, std::string_view separator,
                                                  std::int64_t limit) {
  std::vector<std::string_view> out;
  std::size_t end = text.size();
  while (more(limit, out.size()) && end >= separator.size()) {
    const std::size_t hit = text.rfind(separator, end - separator.size());
    if (hit == std::string_view::npos) break;
    out.push_back(text.substr(hit + separator.size(), end - hit - separator.size()));
    end = hit;
  }
  out.push_back(text.substr(0, end));
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string_view> split_at_space(std::string_view text, std::int64_t limit) {
  std::vector<std::string_view> out;
  text = strip_text(text, Side::left, nullptr);
  while (!text.empty()) {
    if (!more(limit, out.size())) {
      out.push_back(strip_text(text, Side::right, nullptr));
      break;
    }
    std::size_t end = 0;
    while (end < text.size() && text[end] != ' ' && !(text[end] >= '\t' && text[end] <= '\r'))
      ++end;
    out.push_back(text.substr(0, end));
    text = strip_text(text.substr(end), Side::left, nullptr);
  }
  return out;
}

std::string upper_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), upper);
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

std::string title_case(std::string_view text) {
  std::string out(text);
  bool inside = false;
  for (char& c : out) {
    c = inside ? lower(c) : upper(c);
    inside = is_letter(c);
  }
  return out;
}

std::string capital_case(std::string_view text) {
  std::string out = lower_case(text);
  if (!out.empty()) out[0] = upper(out[0]);
  return out;
}

}  // namespace infos::text::jinja
