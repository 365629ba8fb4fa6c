// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/text/jinja_render.h"

#include <algorithm>

#include "daemon/gateway/text/jinja_lexer.h"

namespace infos::text::jinja {
namespace {

using Kind = Expression::Kind;

constexpr std::uint32_t kCallsPerDepth =
    4;  // nested evaluations for each level of ChatTemplateLimits::depth; one takes up to 8 KiB of
        // stack

Error invalid(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

enum class Flow { normal, leave, next };

class Renderer {
 public:
  Renderer(const Template& parsed, const ChatTemplateLimits& limits)
      : template_(parsed), limits_(limits), budget_(limits.steps, limits.output_bytes) {
    frames_.emplace_back();
  }

  void define(std::string name, Value value) { assign(std::move(name), std::move(value)); }

  Result<std::string> run() {
    std::string out;
    out_ = &out;
    INFOS_TRY(run_block(template_.body));
    return out;
  }

 private:
  using Frame = std::vector<std::pair<std::string, Value>>;

  /// Counts nested evaluations, so that no template can use up the machine's stack.
  class Level {
   public:
    explicit Level(std::uint32_t& level) : level_(level) { ++level_; }
    ~Level() { --level_; }

   private:
    std::uint32_t& level_;
  };

  Error placed(Error error, std::uint32_t offset) const {
    if (error.message.starts_with("chat template "))
      return error;  // the innermost place is the best
    return {error.code,
            "chat template " + place_of(template_.source, offset) + ": " + error.message};
  }

  Status enter() {
    if (level_ > limits_.depth * kCallsPerDepth)
      return Error{
          ErrorCode::resource_exhausted,
          "the template nests deeper than " + std::to_string(limits_.depth * kCallsPerDepth)};
    return budget_.charge(1);
  }

  // ---- variables
  void assign(std::string name, Value value) {
    for (auto& [other, held] : frames_.back()) {
      if (other != name) continue;
      held = std::move(value);
      return;
    }
    frames_.back().emplace_back(std::move(name), std::move(value));
  }

  const Value* look_up(std::string_view name) const {
    const auto in = [&](const Frame& frame) -> const Value* {
      for (const auto& [other, value] : frame)
        if (other == name) return &value;
      return nullptr;
    };
    for (std::size_t i = frames_.size(); i > base_; --i)
      if (const Value* found = in(frames_[i - 1])) return found;
    return base_ > 0 ? in(frames_[0]) : nullptr;
  }

  Status unpack(const std::vector<std::string>& targets, const Value& value) {
    if (targets.size() == 1) {
      assign(targets[0], value);
      return {};
    }
    const auto items = INFOS_TRY(iterate(budget_, value));
    if (items->items.size() != targets.size())
      return invalid("found " + std::to_string(items->items.size()) + " values for " +
                     std::to_string(targets.size()) + " variables");
    for (std::size_t i = 0; i < targets.size(); ++i) assign(targets[i], items->items[i]);
    return {};
  }

  // ---- statements
  Status put(std::string_view text) {
    if (text.size() > limits_.output_bytes - std::min(out_->size(), limits_.output_bytes))
      return Error{ErrorCode::resource_exhausted,
                   "the output has more than " + std::to_string(limits_.output_bytes) + " bytes"};
    INFOS_TRY(budget_.charge_text(text.size()));
    out_->append(text);
    return {};
  }

  Result<Flow> run_block(const Block& block) {
    for (const auto& statement : block) {
      auto flow = run_statement(*statement);
      if (!flow.ok()) return placed(std::move(flow).error(), statement->offset);
      if (*flow != Flow::normal) return flow;
    }
    return Flow::normal;
  }

  Result<Flow> run_statement(const Statement& statement) {
    const Level level(level_);
    INFOS_TRY(enter());
    switch (statement.kind) {
      case Statement::Kind::text:
        INFOS_TRY(put(statement.text));
        break;
      case Statement::Kind::output: {
        const Value value = INFOS_TRY(evaluate(*statement.value));
        INFOS_TRY(budget_.charge(weight_of(value)));
        INFOS_TRY(put(to_text(value)));
        break;
      }
      case Statement::Kind::branch:
        return run_branch(statement);
      case Statement::Kind::loop:
        return run_loop(statement);
      case Statement::Kind::set:
        INFOS_TRY(unpack(statement.targets, INFOS_TRY(evaluate(*statement.value))));
        break;
      case Statement::Kind::set_attribute:
        INFOS_TRY(set_attribute(statement));
        break;
      case Statement::Kind::set_block: {
        std::string text = INFOS_TRY(capture(statement.blocks[0]));
        assign(statement.targets[0], Value::string(std::move(text)));
        break;
      }
      case Statement::Kind::macro:
        assign(statement.text, Value::of(&statement));
        break;
      case Statement::Kind::leave:
        return Flow::leave;
      case Statement::Kind::next:
        return Flow::next;
    }
    return Flow::normal;
  }

  Result<Flow> run_branch(const Statement& statement) {
    for (std::size_t i = 0; i < statement.conditions.size(); ++i)
      if (INFOS_TRY(evaluate(*statement.conditions[i])).truthy())
        return run_block(statement.blocks[i]);
    return statement.blocks.size() > statement.conditions.size()
               ? run_block(statement.blocks.back())
               : Flow::normal;
  }

  Status set_attribute(const Statement& statement) {
    const Value value = INFOS_TRY(evaluate(*statement.value));
    const Value* target = look_up(statement.targets[0]);
    const auto* space = target ? target->as<std::shared_ptr<Namespace>>() : nullptr;
    if (!space)
      return invalid("'" + statement.targets[0] +
                     "' is no namespace, so its attributes cannot be set");
    return keep_in_namespace(**space, statement.targets[1], value);
  }

  Result<std::string> capture(const Block& block) {
    std::string text;
    std::string* const outer = std::exchange(out_, &text);
    const auto flow = run_block(block);
    out_ = outer;
    if (!flow.ok()) return flow.error();
    return text;
  }

  /// The items of a loop that pass its `if`.
  Result<std::shared_ptr<const List>> items_of_loop(const Statement& statement) {
    auto items = INFOS_TRY(iterate(budget_, INFOS_TRY(evaluate(*statement.value))));
    if (statement.conditions.empty()) return items;
    std::vector<Value> kept;
    frames_.emplace_back();
    for (const Value& item : items->items) {
      INFOS_TRY(unpack(statement.targets, item));
      if (INFOS_TRY(evaluate(*statement.conditions[0])).truthy()) kept.push_back(item);
    }
    frames_.pop_back();
    return *INFOS_TRY(make_list(std::move(kept))).as<std::shared_ptr<const List>>();
  }

  Result<Flow> run_loop(const Statement& statement) {
    const auto items = INFOS_TRY(items_of_loop(statement));
    if (items->items.empty())
      return statement.blocks.size() > 1 ? run_block(statement.blocks[1]) : Flow::normal;
    frames_.emplace_back();
    ++loops_;
    for (std::size_t i = 0; i < items->items.size(); ++i) {
      INFOS_TRY(budget_.charge(1));
      frames_.back().clear();
      Loop loop{items, i, loops_ - 1};
      assign("loop", Value::of(std::make_shared<const Loop>(std::move(loop))));
      INFOS_TRY(unpack(statement.targets, items->items[i]));
      if (INFOS_TRY(run_block(statement.blocks[0])) == Flow::leave) break;
    }
    --loops_;
    frames_.pop_back();
    return Flow::normal;
  }

  // ---- expressions
  Result<Value> evaluate(const Expression& e) {
    const Level level(level_);
    if (auto status = enter(); !status.ok()) return placed(std::move(status).error(), e.offset);
    auto value = evaluate_kind(e);
    if (!value.ok()) return placed(std::move(value).error(), e.offset);
    return value;
  }

  Result<Value> evaluate_kind(const Expression& e) {
    switch (e.kind) {
      case Kind::constant:
        return e.constant;
      case Kind::name: {
        const Value* found = look_up(e.text);
        return found ? *found : Value::undefined(e.text);
      }
      case Kind::list:
        return make_list(INFOS_TRY(evaluate_all(e.parts)));
      case Kind::dict:
        return evaluate_dict(e);
      case Kind::attribute:
        return attribute_of(INFOS_TRY(evaluate(*e.parts[0])), e.text);
      case Kind::subscript:
        return item_of(INFOS_TRY(evaluate(*e.parts[0])), INFOS_TRY(evaluate(*e.parts[1])));
      case Kind::slice:
        return evaluate_slice(e);
      case Kind::call:
        return evaluate_call(e);
      case Kind::filter:
        return evaluate_filter(e);
      case Kind::test:
        return evaluate_test(e);
      case Kind::unary:
        return evaluate_unary(e);
      case Kind::binary:
        return evaluate_binary(e);
      case Kind::concat:
        return evaluate_concat(e);
      case Kind::compare:
        return evaluate_compare(e);
      case Kind::choice:
        if (INFOS_TRY(evaluate(*e.parts[1])).truthy()) return evaluate(*e.parts[0]);
        return e.parts[2] ? evaluate(*e.parts[2]) : Value::undefined("the value without else");
    }
    return Value();
  }

  Result<std::vector<Value>> evaluate_all(const std::vector<ExpressionPtr>& parts) {
    std::vector<Value> out;
    for (const auto& part : parts) out.push_back(INFOS_TRY(evaluate(*part)));
    return out;
  }

  Result<Value> evaluate_dict(const Expression& e) {
    std::vector<std::pair<std::string, Value>> items;
    for (std::size_t i = 0; i < e.parts.size(); i += 2) {
      const Value key = INFOS_TRY(evaluate(*e.parts[i]));
      if (!key.text())
        return Error{
            ErrorCode::unsupported,
            std::string("the key of a mapping must be a string here, found ") + key.kind()};
      items.emplace_back(*key.text(), INFOS_TRY(evaluate(*e.parts[i + 1])));
    }
    return make_dict(std::move(items));
  }

  Result<Value> evaluate_slice(const Expression& e) {
    const auto bound = [&](std::size_t i) -> Result<Value> {
      return e.parts[i] ? evaluate(*e.parts[i]) : Value::undefined("bound");
    };
    const Value value = INFOS_TRY(evaluate(*e.parts[0]));
    const Value begin = INFOS_TRY(bound(1)), end = INFOS_TRY(bound(2)), step = INFOS_TRY(bound(3));
    return slice(budget_, value, begin, end, step);
  }

  Result<Arguments> evaluate_arguments(const std::vector<Argument>& arguments) {
    Arguments out;
    for (const Argument& argument : arguments) {
      Value value = INFOS_TRY(evaluate(*argument.value));
      if (argument.name.empty()) {
        out.positional.push_back(std::move(value));
      } else {
        out.named.emplace_back(argument.name, std::move(value));
      }
    }
    return out;
  }

  Result<Value> evaluate_filter(const Expression& e) {
    const Value value = INFOS_TRY(evaluate(*e.parts[0]));
    const Arguments arguments = INFOS_TRY(evaluate_arguments(e.arguments));
    return apply_filter(budget_, e.text, value, arguments);
  }

  Result<Value> evaluate_test(const Expression& e) {
    const Value value = INFOS_TRY(evaluate(*e.parts[0]));
    const Arguments arguments = INFOS_TRY(evaluate_arguments(e.arguments));
    if (!e.arguments.empty()) INFOS_TRY(budget_.charge(weight_of(value) / 16));
    if (e.text == "defined" && e.parts[0]->kind == Kind::name && is_function(e.parts[0]->text))
      return Value::boolean(true);
    return Value::boolean(INFOS_TRY(apply_test(e.text, value, arguments)));
  }

  Result<Value> evaluate_unary(const Expression& e) {
    const Value value = INFOS_TRY(evaluate(*e.parts[0]));
    if (e.text == "not") return Value::boolean(!value.truthy());
    return arithmetic(budget_, e.text, Value::integer(0), value);
  }

  Result<Value> evaluate_binary(const Expression& e) {
    Value left = INFOS_TRY(evaluate(*e.parts[0]));
    if (e.text == "and")
      return left.truthy() ? evaluate(*e.parts[1]) : Result<Value>(std::move(left));
    if (e.text == "or")
      return left.truthy() ? Result<Value>(std::move(left)) : evaluate(*e.parts[1]);
    const Value right = INFOS_TRY(evaluate(*e.parts[1]));
    return arithmetic(budget_, e.text, left, right);
  }

  Result<Value> evaluate_concat(const Expression& e) {
    std::string out;
    for (const auto& part : e.parts) {
      const Value value = INFOS_TRY(evaluate(*part));
      INFOS_TRY(budget_.charge(weight_of(value)));
      const std::string text = to_text(value);
      if (out.size() + text.size() > limits_.output_bytes)
        return Error{
            ErrorCode::resource_exhausted,
            "a text would have more than " + std::to_string(limits_.output_bytes) + " bytes"};
      out += text;
    }
    return Value::string(std::move(out));
  }

  Result<bool> compare(std::string_view op, const Value& left, const Value& right) {
    INFOS_TRY(budget_.charge((weight_of(left) + weight_of(right)) / 16));
    if (op == "==") return equal(left, right);
    if (op == "!=") return !equal(left, right);
    if (op == "in") return contains(right, left);
    if (op == "not in") return !INFOS_TRY(contains(right, left));
    if (left.is_undefined()) return undefined_error(left);
    if (right.is_undefined()) return undefined_error(right);
    const int result = INFOS_TRY(order(left, right));
    if (op == "<") return result < 0;
    if (op == "<=") return result <= 0;
    return op == ">" ? result > 0 : result >= 0;
  }

  Result<Value> evaluate_compare(const Expression& e) {
    Value left = INFOS_TRY(evaluate(*e.parts[0]));
    for (std::size_t i = 0; i < e.operators.size(); ++i) {
      Value right = INFOS_TRY(evaluate(*e.parts[i + 1]));
      if (!INFOS_TRY(compare(e.operators[i], left, right))) return Value::boolean(false);
      left = std::move(right);
    }
    return Value::boolean(true);
  }

  // ---- calls
  Result<Value> evaluate_call(const Expression& e) {
    const Expression& callee = *e.parts[0];
    if (callee.kind == Kind::attribute) {
      const Value object = INFOS_TRY(evaluate(*callee.parts[0]));
      const Arguments arguments = INFOS_TRY(evaluate_arguments(e.arguments));
      return call_method(budget_, object, callee.text, arguments);
    }
    if (callee.kind != Kind::name)
      return Error{ErrorCode::unsupported, "only names and methods can be called"};
    const Arguments arguments = INFOS_TRY(evaluate_arguments(e.arguments));
    if (const Value* found = look_up(callee.text)) {
      const auto* macro = found->as<const Statement*>();
      if (!macro)
        return invalid("'" + callee.text + "' is " + found->kind() + " and cannot be called");
      return call_macro(**macro, arguments);
    }
    return call_function(budget_, callee.text, arguments);
  }

  Result<Value> call_macro(const Statement& macro, const Arguments& arguments) {
    if (arguments.positional.size() > macro.parameters.size())
      return invalid("the macro '" + macro.text + "' takes at most " +
                     std::to_string(macro.parameters.size()) + " arguments");
    for (const auto& named : arguments.named) {
      const auto is_it = [&](const Argument& parameter) { return parameter.name == named.first; };
      if (std::none_of(macro.parameters.begin(), macro.parameters.end(), is_it))
        return invalid("the macro '" + macro.text + "' has no parameter '" + named.first + "'");
    }
    const std::size_t outer_base = std::exchange(base_, frames_.size());
    const std::size_t outer_loops = std::exchange(loops_, 0);
    frames_.emplace_back();
    auto text = run_macro(macro, arguments);
    frames_.resize(base_);
    base_ = outer_base;
    loops_ = outer_loops;
    if (!text.ok()) return std::move(text).error();
    return Value::string(std::move(text).value());
  }

  Result<std::string> run_macro(const Statement& macro, const Arguments& arguments) {
    for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
      const Argument& parameter = macro.parameters[i];
      Value value = Value::undefined(parameter.name);
      if (i < arguments.positional.size()) {
        value = arguments.positional[i];
      } else {
        bool given = false;
        for (const auto& [name, named] : arguments.named) {
          if (name != parameter.name) continue;
          value = named;
          given = true;
        }
        if (!given && parameter.value) value = INFOS_TRY(evaluate(*parameter.value));
      }
      assign(parameter.name, std::move(value));
    }
    return capture(macro.blocks[0]);
  }

  const Template& template_;
  const ChatTemplateLimits& limits_;
  Budget budget_;
  std::vector<Frame> frames_;
  std::size_t base_ =
      0;  ///< first frame that is visible besides the outermost: a macro sees no caller's
  std::size_t loops_ = 0;
  std::uint32_t level_ = 0;
  std::string* out_ = nullptr;
};

}  // namespace

Result<std::string> render(const Template& parsed,
                           std::vector<std::pair<std::string, Value>> variables,
                           const ChatTemplateLimits& limits) {
  Renderer renderer(parsed, limits);
  for (auto& [name, value] : variables) renderer.define(std::move(name), std::move(value));
  return renderer.run();
}

}  // namespace infos::text::jinja
