// SPDX-License-Identifier: Apache-2.0
// WireWriter, WireReader: the few fixed-width fields of side-channel messages, little-endian as the
// machines that have RDMA are. A reader never reads past its end: it turns bad and yields zeroes.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace infos {

class WireWriter {
 public:
  template <typename T>
  WireWriter& number(T value) {
    static_assert(std::is_integral_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  WireWriter& text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    bytes_.append(value);
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}
  template <typename T>
  T number() {
    T value{};
    if (bytes_.size() < sizeof value) {
      bad_ = true;
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_.remove_prefix(sizeof value);
    return value;
  }
  std::string_view text() {
    const auto size = number<std::uint32_t>();
    if (bytes_.size() < size) {
      bad_ = true;
      return {};
    }
    const std::string_view value = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return value;
  }
  std::string_view rest() const { return bytes_; }
  /// Everything was there and nothing is left.
  bool done() const { return !bad_ && bytes_.empty(); }
  bool good() const { return !bad_; }

 private:
  std::string_view bytes_;
  bool bad_ = false;
};

}  // namespace infos
