// SPDX-License-Identifier: Apache-2.0
// Runs a parsed template over variables, within a budget of steps, depth and output. One render on
// one thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "daemon/gateway/chat_template.h"
#include "daemon/gateway/text/jinja_ast.h"
#include "daemon/gateway/text/jinja_runtime.h"

namespace infos::text::jinja {

/// Errors: invalid_argument with line:column (undefined names, wrong types, raise_exception),
/// unsupported naming the filter, test, function or method, resource_exhausted at a limit.
Result<std::string> render(const Template& parsed,
                           std::vector<std::pair<std::string, Value>> variables,
                           const ChatTemplateLimits& limits);

/// `left op right`; op is one of + - * / // % **.
Result<Value> arithmetic(Budget& budget, std::string_view op, const Value& left,
                         const Value& right);
/// Bounds are Undefined when absent. Errors: invalid_argument.
Result<Value> slice(Budget& budget, const Value& value, const Value& begin, const Value& end,
                    const Value& step);

}  // namespace infos::text::jinja
