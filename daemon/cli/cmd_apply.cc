// SPDX-License-Identifier: Apache-2.0
// `infos apply`: reads spec files, says every error in them, and hands them to infosd as one wish.
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <iterator>

#include "daemon/cli/admin.h"
#include "daemon/cli/commands.h"
#include "topology/spec/spec.h"

namespace infos::cli {
namespace {

/// "-" is stdin. Errors: io, resource_exhausted.
Result<SpecFile> read_spec(const std::string& path) {
  SpecFile file{path == "-" ? "stdin" : path, ""};
  std::FILE* in = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (!in) return Error{ErrorCode::io, fmt::format("cannot open {}", path)};
  std::string text(kSpecBytesMax + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), in));
  const bool failed = std::ferror(in) != 0;
  if (in != stdin) std::fclose(in);
  if (failed) return Error{ErrorCode::io, fmt::format("cannot read {}", path)};
  file.text = std::move(text);
  return file;
}

}  // namespace

void describe_apply(boost::program_options::options_description_easy_init add) {
  namespace po = boost::program_options;
  add("file,f", po::value<std::vector<std::string>>()->value_name("FILE"),
      "spec to apply; may be repeated; - is stdin");
  add("check", "only say what is wrong with the files; needs no infosd");
  describe_socket(add);
}

int run_apply(const Invocation& given) {
  std::vector<std::string> paths = given.words;
  if (given.has("file")) {
    const auto named = given.options["file"].as<std::vector<std::string>>();
    paths.insert(paths.end(), named.begin(), named.end());
  }
  if (paths.empty())
    return complain(kUsage, "apply: want at least one file, as in: infos apply -f cluster.yaml");
  std::vector<SpecFile> files;
  for (const std::string& path : paths) {
    Result<SpecFile> file = read_spec(path);
    if (!file.ok()) return complain(kFailed, file.error());
    files.push_back(std::move(file).value());
  }
  const SpecOutcome outcome = parse_spec(files);
  if (!outcome.ok()) {
    std::fputs(outcome.error_text().c_str(), stderr);
    return complain(kFailed, fmt::format("{} error{}; nothing was changed", outcome.errors.size(),
                                         outcome.errors.size() == 1 ? "" : "s"));
  }
  if (given.has("check")) {
    std::printf("%zu file%s without errors\n", files.size(), files.size() == 1 ? "" : "s");
    return kDone;
  }
  std::string whole;
  for (const SpecFile& file : files) whole += (whole.empty() ? "" : "\n---\n") + file.text;
  const auto answer = admin_post(given, "/admin/v1/apply", whole);
  if (!answer.ok()) return complain(kFailed, answer.error().message + "\nnothing was changed");
  std::printf("applied: %zu model%s, %s worker%s wanted\n", outcome.set.models.size(),
              outcome.set.models.size() == 1 ? "" : "s", word_of(*answer, "workers").c_str(),
              word_of(*answer, "workers") == "1" ? "" : "s");
  return kDone;
}

}  // namespace infos::cli
