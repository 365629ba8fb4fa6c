// SPDX-License-Identifier: Apache-2.0
// `infos chat`: one question, or a conversation, answered in the terminal as the tokens come.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "daemon/cli/commands.h"
#include "daemon/cli/http_parse.h"
#include "daemon/cli/openai.h"
#include "daemon/cli/table.h"

namespace infos::cli {
namespace {

namespace json = boost::json;

struct Talk {
  Endpoint endpoint;
  std::string api_key;
  std::string model;
  enum class Style { chat, complete } style = Style::chat;
  json::object parameters;  ///< max_tokens, temperature, seed
  json::array messages;
  enum class Stats { no, yes } stats = Stats::no;
};

struct Answer {
  std::string text;
  std::string finish_reason;
  std::uint64_t prompt_tokens = 0, completion_tokens = 0;
};

std::string body_of(const Talk& talk, const std::string& question) {
  json::object body = talk.parameters;
  body["model"] = talk.model;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  if (talk.style == Talk::Style::complete) {
    body["prompt"] = question;
  } else {
    body["messages"] = talk.messages;
  }
  return json::serialize(body);
}

/// Asks, prints the answer as it comes. Errors: the server's, or the connection's.
Result<Answer> ask(const Talk& talk, const std::string& question) {
  HttpCall call;
  call.method = "POST";
  call.target = talk.style == Talk::Style::complete ? "/v1/completions" : "/v1/chat/completions";
  call.api_key = talk.api_key;
  call.body = body_of(talk, question);
  call.silence_timeout = seconds(600);
  Answer answer;
  std::string problem;
  EventParser events([&](std::string_view data) {
    const Result<StreamEvent> event = read_stream_event(data);
    if (!event.ok()) problem = event.error().message;
    if (!event.ok()) return;
    if (!event->error.empty()) problem = event->error;
    answer.text += event->text;
    std::fputs(safe_for_terminal(event->text).c_str(), stdout);
    std::fflush(stdout);
    if (!event->finish_reason.empty()) answer.finish_reason = event->finish_reason;
    answer.prompt_tokens = event->prompt_tokens.value_or(answer.prompt_tokens);
    answer.completion_tokens = event->completion_tokens.value_or(answer.completion_tokens);
  });
  const HttpAnswer got = INFOS_TRY(http_stream(talk.endpoint, call, [&](std::string_view piece) {
    const Status status = events.feed(piece);
    if (!status.ok()) problem = status.error().message;
    return problem.empty() ? Stream::go_on : Stream::stop;
  }));
  if (got.status != 200) return Error{ErrorCode::invalid_argument, error_message(got)};
  if (!problem.empty()) return Error{ErrorCode::unavailable, problem};
  return answer;
}

/// As ask; a model without a chat template continues the text instead.
Result<Answer> ask_in_any_style(Talk& talk, const std::string& question) {
  Result<Answer> answer = ask(talk, question);
  const bool no_template = !answer.ok() && talk.style == Talk::Style::chat &&
                           answer.error().message.find("chat template") != std::string::npos;
  if (!no_template) return answer;
  std::fprintf(stderr, "(%s has no chat template: it continues your text)\n",
               safe_for_terminal(talk.model).c_str());
  talk.style = Talk::Style::complete;
  return ask(talk, question);
}

int say(Talk& talk, const std::string& question) {
  talk.messages.push_back({{"role", "user"}, {"content", question}});
  const Result<Answer> answer = ask_in_any_style(talk, question);
  if (!answer.ok()) {
    talk.messages.pop_back();
    std::printf("\n");
    return complain(kFailed, answer.error());
  }
  std::printf("\n");
  std::fflush(stdout);  // the statistics go to stderr, after it
  talk.messages.push_back({{"role", "assistant"}, {"content", answer->text}});
  if (talk.stats == Talk::Stats::yes)
    std::fprintf(stderr, "(%llu prompt tokens, %llu answer tokens, ended by %s)\n",
                 static_cast<unsigned long long>(answer->prompt_tokens),
                 static_cast<unsigned long long>(answer->completion_tokens),
                 safe_for_terminal(answer->finish_reason).c_str());
  return kDone;
}

int converse(Talk& talk) {
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  if (terminal)
    std::fprintf(stderr, "Talking to %s. /new forgets what was said, /exit or Ctrl-D ends.\n",
                 safe_for_terminal(talk.model).c_str());
  int code = kDone;
  const json::array start = talk.messages;
  while (true) {
    if (terminal) std::fputs("> ", stderr);
    std::string line;
    if (!std::getline(std::cin, line) || line == "/exit") return code;
    if (line == "/new") talk.messages = start;
    if (line.empty() || line == "/new") continue;
    const int now = say(talk, line);
    if (now != kDone) code = now;
  }
}

/// Splits the words into model and message: a first word that is a model's name is the model.
Result<std::string> choose(const Invocation& given, const std::vector<std::string>& models,
                           Talk& talk) {
  std::vector<std::string> words = given.words;
  const auto known = [&](const std::string& name) {
    return std::find(models.begin(), models.end(), name) != models.end();
  };
  if (given.has("model")) {
    talk.model = given.text("model");
  } else if (!words.empty() && (known(words[0]) || words.size() == 2)) {
    talk.model = words[0];
    words.erase(words.begin());
  } else if (!models.empty()) {
    talk.model = models.front();
  }
  std::string all;
  for (const std::string& name : models) all += (all.empty() ? "" : ", ") + name;
  if (!known(talk.model))
    return Error{ErrorCode::not_found,
                 fmt::format("no model '{}' is served; there {}", talk.model.substr(0, 128),
                             models.empty() ? "are none" : "are: " + all)};
  return words.empty() ? std::string() : words[0];
}

}  // namespace

void describe_chat(boost::program_options::options_description_easy_init add) {
  namespace po = boost::program_options;
  const auto text = [](const char* word) { return po::value<std::string>()->value_name(word); };
  add("url", text("URL")->default_value("http://127.0.0.1:8080"), "where infosd listens");
  add("model", text("NAME"), "which model; default: the first that is served");
  add("system", text("TEXT"), "what the model is told before the conversation");
  add("complete", "continue the text, without a chat template");
  add("max-tokens", text("N")->default_value("512"), "longest answer");
  add("temperature", text("T"), "0: always the likeliest token");
  add("seed", text("N"), "same seed, same answer");
  add("api-key", text("KEY"), "default: $INFOS_API_KEY");
  add("stats", "say how many tokens it took");
}

int run_chat(const Invocation& given) {
  Talk talk;
  talk.endpoint = INFOS_CLI_TRY(parse_endpoint(given.text("url")));
  talk.parameters["max_tokens"] = INFOS_CLI_TRY(count_option(given, "max-tokens", 1, 1u << 24));
  if (given.has("temperature"))
    talk.parameters["temperature"] = INFOS_CLI_TRY(real_option(given, "temperature", 0, 2));
  if (given.has("seed"))
    talk.parameters["seed"] = INFOS_CLI_TRY(count_option(given, "seed", 0, INT64_MAX));
  const char* key = std::getenv("INFOS_API_KEY");
  talk.api_key = given.has("api-key") ? given.text("api-key") : key ? key : "";
  if (given.has("complete")) talk.style = Talk::Style::complete;
  if (given.has("stats")) talk.stats = Talk::Stats::yes;
  if (given.has("system"))
    talk.messages.push_back({{"role", "system"}, {"content", given.text("system")}});
  const auto models = list_models(talk.endpoint, talk.api_key);
  if (!models.ok() && models.error().code == ErrorCode::invalid_argument)
    return complain(kFailed, models.error());  // a server answered
  if (!models.ok())
    return complain(kFailed, models.error().message + "; start a server with `infos up`");
  const auto message = choose(given, *models, talk);
  if (!message.ok()) return complain(kFailed, message.error());
  return message->empty() ? converse(talk) : say(talk, *message);
}

}  // namespace infos::cli
