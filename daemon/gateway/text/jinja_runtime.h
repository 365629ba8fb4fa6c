// SPDX-License-Identifier: Apache-2.0
// What filters, tests and methods of the template language need from a running render: its budget,
// and arguments by name. One render on one thread.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/gateway/text/jinja_value.h"

namespace infos::text::jinja {

/// What a render may still do.
class Budget {
 public:
  Budget(std::uint64_t steps, std::size_t bytes_max) : steps_(steps), bytes_max_(bytes_max) {}
  /// Errors: resource_exhausted when the steps are used up.
  Status charge(std::uint64_t steps);
  /// Before a text of so many bytes is made. Errors: resource_exhausted.
  Status charge_text(std::size_t bytes);
  std::size_t bytes_max() const { return bytes_max_; }

 private:
  std::uint64_t steps_;
  std::size_t bytes_max_;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  /// One pointer per parameter, null where it is not given. Errors: invalid_argument for one too
  /// many or unknown.
  Result<std::vector<const Value*>> bind(std::string_view what,
                                         std::initializer_list<std::string_view> parameters) const;
};

Result<Value> apply_filter(Budget& budget, std::string_view name, const Value& value,
                           const Arguments& arguments);
Result<bool> apply_test(std::string_view name, const Value& value, const Arguments& arguments);
/// `value.name(arguments)`.
Result<Value> call_method(Budget& budget, const Value& value, std::string_view name,
                          const Arguments& arguments);

/// A function of the language, by name; not macros.
Result<Value> call_function(Budget& budget, const std::string& name, const Arguments& arguments);
bool is_function(std::string_view name);
/// Errors: unsupported for a namespace or loop: a namespace could then contain itself and never be
/// freed.
Status keep_in_namespace(Namespace& space, const std::string& name, const Value& value);

/// `value.name`; Undefined when there is none. Errors: invalid_argument when `value` itself is
/// undefined.
Result<Value> attribute_of(const Value& value, const std::string& name);
/// `value[key]`; Undefined when there is none. Errors: as above.
Result<Value> item_of(const Value& value, const Value& key);
/// What a `for` runs over. Errors: invalid_argument when that is not possible.
Result<std::shared_ptr<const List>> iterate(Budget& budget, const Value& value);
Result<bool> contains(const Value& container, const Value& item);

/// The text of a string argument. Errors: invalid_argument, with what wanted it.
Result<std::string_view> want_text(std::string_view what, const Value& value);
Result<std::int64_t> want_integer(std::string_view what, const Value& value);
Error undefined_error(const Value& value);
std::vector<std::string_view> characters_of(std::string_view text);
enum class Side { left, right, both };
/// As Python's strip: `which` lists characters, empty pointer: white space.
std::string_view strip_text(std::string_view text, Side side, const std::string_view* which);

}  // namespace infos::text::jinja
