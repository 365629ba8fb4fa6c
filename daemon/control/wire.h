// SPDX-License-Identifier: Apache-2.0
// Protobuf wire format for plain structs that have a field list (codec_fields.h): WireWriter
// appends bytes, WireReader reads untrusted ones. Ours, because the reader must name the field it
// could not read and must not allocate more than the bytes allow. Internal to the codec; any
// thread.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "topology/base/ids.h"
#include "topology/base/units.h"

namespace infos::wire {

template <typename T, typename U>
concept Like = std::same_as<std::remove_const_t<T>, U>;
template <typename T>
concept Wrapped = requires(T v) {
  v.value;
}
&&std::is_integral_v<decltype(T::value)>;
template <typename T>
concept Clocked = std::same_as<T, Time> || std::same_as<T, Duration>;
template <typename T>
concept Integer = std::is_integral_v<T> || std::is_enum_v<T> || Wrapped<T> || Clocked<T>;
template <typename T>
concept Number = Integer<T> || std::is_floating_point_v<T>;
template <typename T>
constexpr bool is_vector = false;
template <typename T>
constexpr bool is_vector<std::vector<T>> = true;
template <typename T>
constexpr bool is_map = false;
template <typename K, typename V>
constexpr bool is_map<std::map<K, V>> = true;
template <typename T>
constexpr bool is_variant = false;
template <typename... T>
constexpr bool is_variant<std::variant<T...>> = true;

/// The word for a message in error texts; specialised beside its field list.
template <typename T>
constexpr const char* kName = "message";
/// Largest value of an enum; specialised beside the field lists.
template <typename T>
constexpr std::uint64_t kEnumMax = 0;

/// Bounds on what one field may hold, so that few bytes cannot ask for much memory.
constexpr std::size_t kMessagesMax = 1u << 16;
constexpr std::size_t kNumbersMax = 1u << 24;

enum WireType : std::uint32_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

template <Integer T>
constexpr std::uint64_t to_varint(T v) {
  if constexpr (std::is_enum_v<T>)
    return static_cast<std::uint64_t>(v);
  else if constexpr (Wrapped<T>)
    return static_cast<std::uint64_t>(v.value);
  else if constexpr (Clocked<T>)
    return static_cast<std::uint64_t>(v.ns);
  else
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(v));
}

/// Appends fields to a string that the caller owns.
class WireWriter {
 public:
  explicit WireWriter(std::string& out) : out_(out) {}

  /// A field that is left out when it holds zero or nothing.
  template <typename T>
  void operator()(std::uint32_t number, const char* name, const T& v) {
    if constexpr (Integer<T>) {
      if (to_varint(v) != 0) always(number, name, v);
    } else if constexpr (std::same_as<T, float>) {
      if (std::bit_cast<std::uint32_t>(v) != 0) always(number, name, v);
    } else if constexpr (std::same_as<T, double>) {
      if (std::bit_cast<std::uint64_t>(v) != 0) always(number, name, v);
    } else if constexpr (std::same_as<T, std::string>) {
      if (!v.empty()) always(number, name, v);
    } else {
      always(number, name, v);
    }
  }

  /// A field whose default is not zero: written whatever it holds.
  template <typename T>
  void always(std::uint32_t number, const char*, const T& v) {
    if constexpr (Integer<T>) {
      tag(number, varint);
      put_varint(to_varint(v));
    } else if constexpr (std::same_as<T, float>) {
      tag(number, fixed32);
      put_fixed(std::bit_cast<std::uint32_t>(v));
    } else if constexpr (std::same_as<T, double>) {
      tag(number, fixed64);
      put_fixed(std::bit_cast<std::uint64_t>(v));
    } else if constexpr (std::same_as<T, std::string>) {
      tag(number, bytes);
      put_varint(v.size());
      out_.append(v);
    } else if constexpr (is_vector<T>) {
      put_vector(number, v);
    } else if constexpr (is_map<T>) {
      for (const auto& entry : v)
        put_nested(number, [&] { always(1, "", entry.first), always(2, "", entry.second); });
    } else {
      put_nested(number, [&] { put_body(v); });
    }
  }

  /// A number of fixed width, for hashes.
  void fixed(std::uint32_t number, const char*, std::uint64_t v) {
    if (v == 0) return;
    tag(number, fixed64);
    put_fixed(v);
  }

  /// The fields of a message without its tag and length.
  template <typename T>
  void put_body(const T& v) {
    if constexpr (is_variant<T>) {
      const auto number = static_cast<std::uint32_t>(v.index() + 1);
      std::visit([&](const auto& alternative) { always(number, "", alternative); }, v);
    } else if constexpr (std::same_as<T, std::pair<TokenId, float>>) {
      (*this)(1, "token", v.first), (*this)(2, "bias", v.second);
    } else {
      fields(*this, v);
    }
  }

 private:
  void put_varint(std::uint64_t v) {
    while (v >= 0x80) {
      out_.push_back(static_cast<char>(v | 0x80));
      v >>= 7;
    }
    out_.push_back(static_cast<char>(v));
  }
  void tag(std::uint32_t number, WireType type) { put_varint(number << 3 | type); }
  template <typename T>
  void put_fixed(T v) {
    char b[sizeof v];
    for (std::size_t i = 0; i < sizeof v; ++i) b[i] = static_cast<char>(v >> (8 * i));
    out_.append(b, sizeof v);
  }
  template <typename F>
  void put_nested(std::uint32_t number, F body) {
    tag(number, bytes);
    const std::size_t at = out_.size();
    out_.push_back(0);
    body();
    std::size_t length = out_.size() - at - 1;
    if (length < 0x80) {
      out_[at] = static_cast<char>(length);
      return;
    }
    char b[10];
    std::size_t n = 0;
    for (; length >= 0x80; length >>= 7) b[n++] = static_cast<char>(length | 0x80);
    b[n++] = static_cast<char>(length);
    out_.insert(at + 1, n - 1, 0);
    std::memcpy(out_.data() + at, b, n);
  }
  template <typename E>
  void put_vector(std::uint32_t number, const std::vector<E>& v) {
    if constexpr (Integer<E>) {
      if (v.empty()) return;
      put_nested(number, [&] {
        for (const E& e : v) put_varint(to_varint(e));
      });
    } else if constexpr (std::same_as<E, std::string>) {
      for (const E& e : v) always(number, "", e);
    } else {
      for (const E& e : v) put_nested(number, [&] { put_body(e); });
    }
  }

  std::string& out_;
};

/// Reads the fields of one message. The first failure sticks: `error()` says field and reason.
class WireReader {
 public:
  explicit WireReader(std::string_view in) : in_(in) {}

  /// Fills `v`. Returns: false on a failure.
  template <typename T>
  bool read(T& v) {
    while (!in_.empty() && error_.empty()) {
      std::uint64_t key = 0;
      if (!get_varint(key) || key > std::numeric_limits<std::uint32_t>::max() || key >> 3 == 0)
        return fail("", "a bad field tag");
      number_ = static_cast<std::uint32_t>(key >> 3);
      type_ = static_cast<std::uint32_t>(key & 7);
      taken_ = false;
      if constexpr (is_variant<T>)
        read_alternative(v, std::make_index_sequence<std::variant_size_v<T>>{});
      else if constexpr (std::same_as<T, std::pair<TokenId, float>>)
        (*this)(1, "token", v.first), (*this)(2, "bias", v.second);
      else
        fields(*this, v);
      if (!taken_ && !skip()) return fail("", "a field that runs past the end");
    }
    if constexpr (is_variant<T>) {
      if (error_.empty() && !alternative_seen_)
        return fail("", "no alternative that this version knows");
    }
    return error_.empty();
  }

  template <typename T>
  void operator()(std::uint32_t number, const char* name, T& v) {
    if (number == number_ && !taken_) {
      taken_ = true;
      take(name, v);
    }
  }
  template <typename T>
  void always(std::uint32_t number, const char* name, T& v) {
    (*this)(number, name, v);
  }
  void fixed(std::uint32_t number, const char* name, std::uint64_t& v) {
    if (number != number_ || taken_) return;
    taken_ = true;
    std::uint64_t raw = 0;
    if (type_ != fixed64 || !get_fixed(raw))
      fail(name, "not 8 bytes");
    else
      v = raw;
  }

  const std::string& error() const { return error_; }

 private:
  bool fail(std::string_view name, std::string_view why) {
    if (error_.empty()) {
      error_ = name;
      if (!name.empty()) error_ += ": ";
      error_ += why;
    }
    return false;
  }
  bool get_varint(std::uint64_t& v) {
    v = 0;
    for (std::size_t i = 0; i < in_.size() && i < 10; ++i) {
      const auto b = static_cast<std::uint8_t>(in_[i]);
      if (i == 9 && b > 1) return false;
      v |= static_cast<std::uint64_t>(b & 0x7f) << (7 * i);
      if (b < 0x80) {
        in_.remove_prefix(i + 1);
        return true;
      }
    }
    return false;
  }
  template <typename T>
  bool get_fixed(T& v) {
    if (in_.size() < sizeof v) return false;
    v = 0;
    for (std::size_t i = 0; i < sizeof v; ++i)
      v |= static_cast<T>(static_cast<std::uint8_t>(in_[i])) << (8 * i);
    in_.remove_prefix(sizeof v);
    return true;
  }
  bool get_bytes(std::string_view& v) {
    std::uint64_t length = 0;
    if (!get_varint(length) || length > in_.size()) return false;
    v = in_.substr(0, length);
    in_.remove_prefix(length);
    return true;
  }
  bool skip() {
    std::uint64_t v = 0;
    std::uint32_t w = 0;
    std::string_view b;
    switch (type_) {
      case varint:
        return get_varint(v);
      case fixed64:
        return get_fixed(v);
      case bytes:
        return get_bytes(b);
      case fixed32:
        return get_fixed(w);
      default:
        return false;
    }
  }

  template <Integer T>
  bool from_varint(const char* name, std::uint64_t raw, T& v) {
    if constexpr (Wrapped<T>)
      return from_varint(name, raw, v.value);
    else if constexpr (Clocked<T>)
      v.ns = static_cast<std::int64_t>(raw);
    else if constexpr (std::is_enum_v<T>) {
      if (raw > kEnumMax<T>)
        return fail(name, std::to_string(raw) + ", want 0 to " + std::to_string(kEnumMax<T>));
      v = static_cast<T>(raw);
    } else if constexpr (std::is_signed_v<T>) {
      const auto s = static_cast<std::int64_t>(raw);
      if (s < std::numeric_limits<T>::min() || s > std::numeric_limits<T>::max())
        return fail(name, std::to_string(s) + " is out of range");
      v = static_cast<T>(s);
    } else {
      if (raw > std::numeric_limits<T>::max())
        return fail(name, std::to_string(raw) + " is out of range");
      v = static_cast<T>(raw);
    }
    return true;
  }

  template <typename T>
  bool take(const char* name, T& v) {
    if constexpr (Integer<T>) {
      std::uint64_t raw = 0;
      if (type_ != varint || !get_varint(raw)) return fail(name, "not a whole number");
      return from_varint(name, raw, v);
    } else if constexpr (std::same_as<T, float>) {
      std::uint32_t raw = 0;
      if (type_ != fixed32 || !get_fixed(raw)) return fail(name, "not 4 bytes");
      v = std::bit_cast<float>(raw);
      return true;
    } else if constexpr (std::same_as<T, double>) {
      std::uint64_t raw = 0;
      if (type_ != fixed64 || !get_fixed(raw)) return fail(name, "not 8 bytes");
      v = std::bit_cast<double>(raw);
      return true;
    } else if constexpr (is_vector<T>) {
      return take_vector(name, v);
    } else {
      std::string_view b;
      if (type_ != bytes || !get_bytes(b)) return fail(name, "a length that runs past the end");
      if constexpr (std::same_as<T, std::string>) {
        v.assign(b);
        return true;
      } else if constexpr (is_map<T>) {
        if (v.size() >= kMessagesMax) return fail(name, "too many entries");
        std::pair<std::string, std::string> entry;
        WireReader inner(b);
        if (!inner.read_entry(entry)) return fail(name, inner.error_);
        v[std::move(entry.first)] = std::move(entry.second);
        return true;
      } else {
        return take_nested(name, b, v);
      }
    }
  }
  template <typename T>
  bool take_nested(const char* name, std::string_view b, T& v) {
    WireReader inner(b);
    if (inner.read(v)) return true;
    return fail(name, inner.error_);
  }
  template <typename E>
  bool take_vector(const char* name, std::vector<E>& v) {
    if constexpr (Integer<E>) {
      std::uint64_t raw = 0;
      if (type_ == varint) {
        if (v.size() >= kNumbersMax || !get_varint(raw)) return fail(name, "not a whole number");
        return from_varint(name, raw, v.emplace_back());
      }
      std::string_view b;
      if (type_ != bytes || !get_bytes(b)) return fail(name, "a length that runs past the end");
      if (v.size() + b.size() > kNumbersMax) return fail(name, "too many entries");
      WireReader inner(b);
      while (!inner.in_.empty()) {
        if (!inner.get_varint(raw)) return fail(name, "not a whole number");
        E e{};
        if (!from_varint(name, raw, e)) return false;
        v.push_back(e);
      }
      return true;
    } else {
      std::string_view b;
      if (type_ != bytes || !get_bytes(b)) return fail(name, "a length that runs past the end");
      if (v.size() >= kMessagesMax) return fail(name, "too many entries");
      if constexpr (std::same_as<E, std::string>)
        return v.emplace_back(b), true;
      else
        return take_nested(name, b, v.emplace_back());
    }
  }
  bool read_entry(std::pair<std::string, std::string>& entry) {
    while (!in_.empty() && error_.empty()) {
      std::uint64_t key = 0;
      if (!get_varint(key) || key > std::numeric_limits<std::uint32_t>::max() || key >> 3 == 0)
        return fail("", "a bad field tag");
      number_ = static_cast<std::uint32_t>(key >> 3);
      type_ = static_cast<std::uint32_t>(key & 7);
      taken_ = false;
      (*this)(1, "key", entry.first);
      (*this)(2, "value", entry.second);
      if (!taken_ && !skip()) return fail("", "a field that runs past the end");
    }
    return error_.empty();
  }
  template <typename V, std::size_t... I>
  void read_alternative(V& v, std::index_sequence<I...>) {
    (read_one<I>(v), ...);
  }
  template <std::size_t I, typename V>
  void read_one(V& v) {
    if (taken_ || number_ != I + 1) return;
    taken_ = true;
    alternative_seen_ = true;
    using T = std::variant_alternative_t<I, V>;
    T value{};
    if (take(kName<T>, value)) v.template emplace<I>(std::move(value));
  }

  std::string_view in_;
  std::string error_;
  std::uint32_t number_ = 0;
  std::uint32_t type_ = 0;
  bool taken_ = false;
  bool alternative_seen_ = false;
};

}  // namespace infos::wire
