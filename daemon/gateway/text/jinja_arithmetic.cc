// SPDX-License-Identifier: Apache-2.0
// Arithmetic and slicing of the template language, as Python has them, with 64-bit integers.
#include <algorithm>
#include <cmath>

#include "daemon/gateway/text/jinja_render.h"

namespace infos::text::jinja {
namespace {

Error invalid(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

Error overflow(std::string_view op) {
  return invalid("the result of '" + std::string(op) + "' is out of range");
}

Result<Value> power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0)
    return Value::of(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
  if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  std::int64_t out = 1;
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(out, base, &out)) return overflow("**");
  return Value::integer(out);
}

Result<Value> whole(std::string_view op, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  if (op == "+")
    return __builtin_add_overflow(a, b, &out) ? Result<Value>(overflow(op)) : Value::integer(out);
  if (op == "-")
    return __builtin_sub_overflow(a, b, &out) ? Result<Value>(overflow(op)) : Value::integer(out);
  if (op == "*")
    return __builtin_mul_overflow(a, b, &out) ? Result<Value>(overflow(op)) : Value::integer(out);
  if (op == "**") return power(a, b);
  if (b == 0) return invalid("division by zero");
  if (op == "/") return Value::of(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) return op == "%" ? Result<Value>(Value::integer(0)) : whole("-", 0, a);
  const std::int64_t quotient = a / b, rest = a % b;
  const bool down = rest != 0 && (rest < 0) != (b < 0);  // Python rounds towards minus infinity
  return Value::integer(op == "//" ? quotient - (down ? 1 : 0) : rest + (down ? b : 0));
}

Result<Value> decimal(std::string_view op, double a, double b) {
  if (op == "+") return Value::of(a + b);
  if (op == "-") return Value::of(a - b);
  if (op == "*") return Value::of(a * b);
  if (op == "**") return Value::of(std::pow(a, b));
  if (b == 0) return invalid("division by zero");
  if (op == "/") return Value::of(a / b);
  const double quotient = std::floor(a / b);
  return Value::of(op == "//" ? quotient : a - quotient * b);
}

Result<Value> repeat(Budget& budget, const Value& what, std::int64_t times) {
  const auto n = static_cast<std::uint64_t>(std::max<std::int64_t>(0, times));
  if (const auto* text = what.text()) {
    if (n != 0 && text->size() > budget.bytes_max() / n)
      return Error{ErrorCode::resource_exhausted,
                   "a text would have more than " + std::to_string(budget.bytes_max()) + " bytes"};
    INFOS_TRY(budget.charge_text(text->size() * n));
    INFOS_TRY(budget.charge(n / 16));
    std::string out;
    for (std::uint64_t i = 0; i < n && !text->empty(); ++i) out += *text;
    return Value::string(std::move(out));
  }
  const auto& items = what.list()->items;
  if (n != 0 && items.size() > kValueWeightMax / n)
    return Error{ErrorCode::resource_exhausted, "a list or mapping holds too much"};
  INFOS_TRY(budget.charge(items.size() * n));
  std::vector<Value> out;
  for (std::uint64_t i = 0; i < n && !items.empty(); ++i)
    out.insert(out.end(), items.begin(), items.end());
  return make_list(std::move(out));
}

/// Indices that a Python slice visits.
std::vector<std::size_t> visited(std::size_t size, const Value& begin, const Value& end,
                                 std::int64_t step) {
  const auto n = static_cast<std::int64_t>(size);
  const auto clamp = [&](const Value& bound, std::int64_t otherwise) {
    const auto* number = bound.as<std::int64_t>();
    if (!number) return otherwise;
    const std::int64_t at = *number < 0 ? std::max<std::int64_t>(*number, -n - 1) + n
                                        : std::min<std::int64_t>(*number, n);
    return step > 0 ? std::clamp<std::int64_t>(at, 0, n) : std::clamp<std::int64_t>(at, -1, n - 1);
  };
  const std::int64_t first = clamp(begin, step > 0 ? 0 : n - 1),
                     stop = clamp(end, step > 0 ? n : -1);
  std::vector<std::size_t> out;
  const std::int64_t stride = std::clamp<std::int64_t>(step, -n - 1, n + 1);
  for (std::int64_t at = first; stride > 0 ? at < stop : at > stop; at += stride)
    out.push_back(static_cast<std::size_t>(at));
  return out;
}

}  // namespace

Result<Value> arithmetic(Budget& budget, std::string_view op, const Value& left,
                         const Value& right) {
  if (left.is_undefined()) return undefined_error(left);
  if (right.is_undefined()) return undefined_error(right);
  if (left.is_number() && right.is_number()) {
    if (left.as<double>() || right.as<double>())
      return decimal(op, to_double(left), to_double(right));
    return whole(op, INFOS_TRY(want_integer(op, left)), INFOS_TRY(want_integer(op, right)));
  }
  if (op == "+" && left.text() && right.text()) {
    INFOS_TRY(budget.charge_text(left.text()->size() + right.text()->size()));
    return Value::string(*left.text() + *right.text());
  }
  if (op == "+" && left.list() && right.list()) {
    std::vector<Value> items = left.list()->items;
    items.insert(items.end(), right.list()->items.begin(), right.list()->items.end());
    INFOS_TRY(budget.charge(items.size()));
    return make_list(std::move(items));
  }
  if (op == "*" && (left.text() || left.list()) && right.as<std::int64_t>())
    return repeat(budget, left, *right.as<std::int64_t>());
  if (op == "*" && (right.text() || right.list()) && left.as<std::int64_t>())
    return repeat(budget, right, *left.as<std::int64_t>());
  return invalid("'" + std::string(op) + "' does not work between " + left.kind() + " and " +
                 right.kind());
}

Result<Value> slice(Budget& budget, const Value& value, const Value& begin, const Value& end,
                    const Value& step) {
  if (value.is_undefined()) return undefined_error(value);
  for (const Value* bound : {&begin, &end, &step})
    if (!bound->is_undefined() && !bound->is_none() && !bound->as<std::int64_t>())
      return invalid(std::string("a slice wants integers, found ") + bound->kind());
  const std::int64_t stride = step.as<std::int64_t>() ? *step.as<std::int64_t>() : 1;
  if (stride == 0) return invalid("the step of a slice is 0");
  if (const auto* text = value.text()) {
    INFOS_TRY(budget.charge_text(text->size()));
    const auto characters = characters_of(*text);
    std::string out;
    for (const std::size_t at : visited(characters.size(), begin, end, stride))
      out += characters[at];
    return Value::string(std::move(out));
  }
  const List* list = value.list();
  if (!list) return invalid(std::string(value.kind()) + " cannot be sliced");
  INFOS_TRY(budget.charge(list->items.size() / 4));
  std::vector<Value> out;
  for (const std::size_t at : visited(list->items.size(), begin, end, stride))
    out.push_back(list->items[at]);
  return make_list(std::move(out));
}

}  // namespace infos::text::jinja
