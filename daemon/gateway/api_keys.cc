// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

namespace infos {
namespace {

constexpr std::size_t kKeyBytesMin = 8;
constexpr std::size_t kFileBytesMax = 16u << 20;

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  constexpr std::string_view kSpace = " \t\r";
  for (std::size_t at = line.find_first_not_of(kSpace); at != std::string_view::npos;) {
    const std::size_t end = std::min(line.size(), line.find_first_of(kSpace, at));
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(kSpace, end);
  }
  return words;
}

}  // namespace

ApiKeys::Digest ApiKeys::digest(std::string_view key) {
  Digest out;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), out.data());
  return out;
}

Result<ApiKeys> ApiKeys::load(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error{ErrorCode::io, "API key file " + path + ": " + std::strerror(errno)};
  std::string text;
  std::array<char, 65536> block;
  while (in.read(block.data(), block.size()), in.gcount() > 0) {
    text.append(block.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > kFileBytesMax) {
      return Error{ErrorCode::invalid_argument, "API key file " + path + ": more than 16 MiB"};
    }
  }
  if (in.bad()) return Error{ErrorCode::io, "API key file " + path + ": cannot be read"};
  return parse(text, path);
}

Result<ApiKeys> ApiKeys::parse(std::string_view text, std::string_view name) {
  ApiKeys keys;
  std::size_t number = 0;
  const auto fail = [&](const std::string& what) {
    return Error{ErrorCode::invalid_argument,
                 "API key file " + std::string(name) + ":" + std::to_string(number) + ": " + what};
  };
  while (!text.empty()) {
    const std::size_t end = std::min(text.size(), text.find('\n'));
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    ++number;
    const auto words = words_of(line);
    if (words.empty() || words[0].front() == '#') continue;
    if (words.size() > 2)
      return fail("a line is `key` or `key tenant`; this one has " + std::to_string(words.size()) +
                  " words");
    if (words[0].size() < kKeyBytesMin)
      return fail("a key has at least 8 characters; this one has " +
                  std::to_string(words[0].size()));
    const Digest d = digest(words[0]);
    for (const Entry& entry : keys.entries_) {
      if (entry.digest == d) return fail("this key stands on an earlier line too");
    }
    keys.entries_.push_back({d, words.size() > 1 ? std::string(words[1]) : "default"});
  }
  if (keys.entries_.empty())
    return fail("no key in it; at least one is needed (or leave the file out)");
  return keys;
}

std::optional<std::string> ApiKeys::tenant(std::string_view key) const {
  const Digest d = digest(key);
  const Entry* found = nullptr;
  // All of them, always: time tells nothing about which one matched.
  for (const Entry& entry : entries_) {
    if (CRYPTO_memcmp(entry.digest.data(), d.data(), d.size()) == 0) found = &entry;
  }
  if (!found) return std::nullopt;
  return found->tenant;
}

}  // namespace infos
