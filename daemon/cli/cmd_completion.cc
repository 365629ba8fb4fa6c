// SPDX-License-Identifier: Apache-2.0
// `infos completion`: shell scripts written from the table of commands, so that they know every
// command and option.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <set>

#include "daemon/cli/commands.h"

namespace infos::cli {
namespace {

/// What may follow "infos a b".
struct Words {
  std::vector<std::string> options;
  std::vector<std::string> words;
};

/// By first word(s): "" gives the commands, "model" its second words, "get" its options and
/// choices.
std::map<std::string, Words> all_words() {
  std::map<std::string, Words> out;
  std::set<std::string> firsts;
  for (const Command& command : commands()) {
    if (command.listed == Command::Listed::no) continue;
    const std::string name = command.name;
    const std::size_t space = name.find(' ');
    const std::string first = name.substr(0, space);
    if (firsts.insert(first).second) out[""].words.push_back(first);
    if (space != std::string::npos) out[first].words.push_back(name.substr(space + 1));
    Words& words = out[name];
    for (const std::string& choice : command.choices) words.words.push_back(choice);
    const auto options = options_of(command);
    for (const auto& option : options.options())
      words.options.push_back("--" + option->long_name());
  }
  return out;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

std::string bash_cases(const char* indent) {
  std::string out;
  for (const auto& [name, words] : all_words())
    out += fmt::format("{}\"{}\") options=\"{}\"; words=\"{}\" ;;\n", indent, name,
                       joined(words.options), joined(words.words));
  return out;
}

std::string bash_script() {
  return R"(# bash completion of infos; load with: source <(infos completion bash)
_infos() {
  local options="" words="" key="" word i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${COMP_WORDS[i]}"
    case "$word" in -*) continue ;; esac
    case "${key:+$key }$word" in
)" +
         [] {
           std::string names;
           for (const auto& [name, words] : all_words())
             if (!name.empty()) names += (names.empty() ? "      \"" : "|\"") + name + "\"";
           return names;
         }() +
         R"() key="${key:+$key }$word" ;;
    esac
  done
  case "$key" in
)" + bash_cases("    ") +
         R"(  esac
  local current="${COMP_WORDS[COMP_CWORD]}"
  if [[ "$current" == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  elif [[ -n "$words" ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}
complete -o filenames -F _infos infos
)";
}

std::string zsh_script() {
  return "#compdef infos\n# zsh completion of infos; load with: source <(infos completion zsh)\n"
         "autoload -U +X bashcompinit && bashcompinit\n" +
         bash_script().substr(bash_script().find('\n') + 1);
}

std::string fish_script() {
  std::string out =
      "# fish completion of infos; load with: infos completion fish | source\ncomplete -c infos "
      "-f\n";
  for (const Command& command : commands()) {
    if (command.listed == Command::Listed::no) continue;
    const std::string name = command.name;
    const std::size_t space = name.find(' ');
    const std::string first = name.substr(0, space);
    std::string when = fmt::format("__fish_seen_subcommand_from {}", first);
    if (space == std::string::npos) {
      out += fmt::format("complete -c infos -n __fish_use_subcommand -a {} -d '{}'\n", first,
                         command.summary);
    } else {
      out += fmt::format("complete -c infos -n __fish_use_subcommand -a {}\n", first);
      out += fmt::format("complete -c infos -n '{}' -a {} -d '{}'\n", when, name.substr(space + 1),
                         command.summary);
      when += fmt::format("; and __fish_seen_subcommand_from {}", name.substr(space + 1));
    }
    const auto options = options_of(command);
    for (const auto& option : options.options())
      out += fmt::format("complete -c infos -n '{}' -l {}\n", when, option->long_name());
    for (const std::string& choice : command.choices)
      out += fmt::format("complete -c infos -n '{}' -a {}\n", when, choice);
    if (command.choices.empty() && command.words_max > 0)
      out += fmt::format("complete -c infos -n '{}' -F\n", when);
  }
  return out;
}

}  // namespace

int run_completion(const Invocation& given) {
  const std::string& shell = given.words.at(0);
  if (shell != "bash" && shell != "zsh" && shell != "fish")
    return complain(kUsage,
                    fmt::format("completion '{}': want bash, zsh or fish", shell.substr(0, 64)));
  const std::string script = shell == "bash"  ? bash_script()
                             : shell == "zsh" ? zsh_script()
                                              : fish_script();
  std::fputs(script.c_str(), stdout);
  return kDone;
}

}  // namespace infos::cli
