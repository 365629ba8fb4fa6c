// SPDX-License-Identifier: Apache-2.0
// The functions that a template may call by name.
#include "daemon/gateway/text/jinja_runtime.h"

namespace infos::text::jinja {
namespace {

constexpr std::int64_t kRangeMax = 100'000;
constexpr std::string_view kFunctions = "range, namespace, dict, raise_exception";

Error invalid(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

Result<Value> call_range(Budget& budget, const Arguments& arguments) {
  const auto bound = INFOS_TRY(arguments.bind("range", {"start", "stop", "step"}));
  if (!bound[0]) return invalid("range wants 1 to 3 integers");
  std::int64_t start = 0, stop = INFOS_TRY(want_integer("range", *bound[0])), step = 1;
  if (bound[1]) {
    start = stop;
    stop = INFOS_TRY(want_integer("range", *bound[1]));
  }
  if (bound[2]) step = INFOS_TRY(want_integer("range", *bound[2]));
  if (step == 0) return invalid("the step of range is 0");
  std::vector<Value> out;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (out.size() == static_cast<std::size_t>(kRangeMax))
      return Error{ErrorCode::resource_exhausted,
                   "range has more than " + std::to_string(kRangeMax) + " numbers"};
    out.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  INFOS_TRY(budget.charge(out.size()));
  return make_list(std::move(out));
}

}  // namespace

Status keep_in_namespace(Namespace& space, const std::string& name, const Value& value) {
  if (value.as<std::shared_ptr<Namespace>>() || value.as<std::shared_ptr<const Loop>>())
    return Error{ErrorCode::unsupported,
                 std::string(value.kind()) + " cannot be kept in a namespace"};
  space.values[name] = value;
  return {};
}

bool is_function(std::string_view name) {
  return name == "range" || name == "namespace" || name == "dict" || name == "raise_exception";
}

Result<Value> call_function(Budget& budget, const std::string& name, const Arguments& arguments) {
  if (name == "raise_exception") {
    const auto bound = INFOS_TRY(arguments.bind(name, {"message"}));
    return invalid("the template refuses: " +
                   (bound[0] ? to_text(*bound[0]).substr(0, 500) : std::string("no reason given")));
  }
  if (name == "range") return call_range(budget, arguments);
  if (name == "dict") {
    if (!arguments.positional.empty())
      return Error{ErrorCode::unsupported, "dict() takes arguments by name only"};
    return make_dict(arguments.named);
  }
  if (name == "namespace") {
    auto space = std::make_shared<Namespace>();
    if (arguments.positional.size() > 1)
      return invalid("namespace takes at most one mapping and arguments by name");
    if (!arguments.positional.empty()) {
      const Dict* dict = arguments.positional[0].dict();
      if (!dict) return invalid("namespace takes at most one mapping and arguments by name");
      for (const auto& [key, value] : dict->items) INFOS_TRY(keep_in_namespace(*space, key, value));
    }
    for (const auto& [key, value] : arguments.named)
      INFOS_TRY(keep_in_namespace(*space, key, value));
    return Value::of(std::move(space));
  }
  if (name == "strftime_now")
    return Error{
        ErrorCode::unsupported,
        "'strftime_now' is not supported: a template sees no clock; pass the date as a variable"};
  return invalid("'" + name.substr(0, 80) +
                 "' is undefined, so it cannot be called; functions: " + std::string(kFunctions));
}

}  // namespace infos::text::jinja
