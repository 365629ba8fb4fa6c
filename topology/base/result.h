// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or an Error, for everything that can be expected to go wrong (files, network,
// bad input). Never used for bugs (INFOS_CHECK) and never thrown.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "topology/base/check.h"

namespace infos {

/// A new code needs a caller that acts on it.
enum class ErrorCode {
  invalid_argument,    ///< the caller's input is wrong; saying it again will not help
  not_found,           ///< the named thing does not exist
  already_exists,      ///< the name is taken
  corrupt,             ///< stored or received bytes contradict themselves
  unsupported,         ///< understood, but this build or device cannot do it
  resource_exhausted,  ///< a bound was reached (memory, blocks, queue); may work later
  unavailable,         ///< the peer, worker or device is gone; may work elsewhere
  deadline_exceeded,   ///< time ran out
  cancelled,           ///< somebody asked for it to stop
  io,                  ///< the operating system said no
};

/// The code as a snake_case word, e.g. "not_found".
constexpr const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::already_exists:
      return "already_exists";
    case ErrorCode::corrupt:
      return "corrupt";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::resource_exhausted:
      return "resource_exhausted";
    case ErrorCode::unavailable:
      return "unavailable";
    case ErrorCode::deadline_exceeded:
      return "deadline_exceeded";
    case ErrorCode::cancelled:
      return "cancelled";
    case ErrorCode::io:
      return "io";
  }
  return "unknown";
}

/// What went wrong, in one sentence that names the place, the value seen and the values allowed.
struct Error {
  ErrorCode code = ErrorCode::invalid_argument;
  std::string message;
};

/// A T or an Error. Must be looked at.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  /// Requires: ok().
  T& value() & {
    INFOS_CHECK(ok());
    return std::get<0>(state_);
  }
  const T& value() const& {
    INFOS_CHECK(ok());
    return std::get<0>(state_);
  }
  T&& value() && {
    INFOS_CHECK(ok());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  /// Requires: !ok().
  const Error& error() const& {
    INFOS_CHECK(!ok());
    return std::get<1>(state_);
  }
  Error&& error() && {
    INFOS_CHECK(!ok());
    return std::get<1>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

/// Success or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}
  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  void value() const { INFOS_CHECK(ok()); }
  const Error& error() const& {
    INFOS_CHECK(!ok());
    return *error_;
  }
  Error&& error() && {
    INFOS_CHECK(!ok());
    return *std::move(error_);
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace infos

/// Yields the value of a Result expression, or returns its Error from the enclosing function.
/// `auto file = INFOS_TRY(open(path));`  Not inside coroutines.
#define INFOS_TRY(expression)                     \
  ({                                              \
    auto infos_try_result = (expression);         \
    if (!infos_try_result.ok()) [[unlikely]]      \
      return std::move(infos_try_result).error(); \
    std::move(infos_try_result).value();          \
  })
