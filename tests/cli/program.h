// SPDX-License-Identifier: Apache-2.0
// Runs a program to its end and gives its exit code and output, or keeps one running and reads its
// lines.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

namespace infos::test {

inline std::string bin_path(const std::string& name) {
  const char* folder = std::getenv("INFOS_BIN");
  return std::string(folder ? folder : INFOS_SOURCE_DIR "/build/dev/bin") + "/" + name;
}

/// A child whose stdout (and stderr, if asked) comes through a pipe. Killed when it goes out of
/// scope.
class Program {
 public:
  enum class Errors { apart, with_output };
  Program(const std::vector<std::string>& words, Errors errors, const std::string& input = "") {
    std::array<int, 2> out{}, in{};
    if (::pipe(out.data()) != 0 || ::pipe(in.data()) != 0) std::abort();
    std::vector<std::string> copy = words;
    std::vector<char*> argv;
    for (std::string& word : copy) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      if (errors == Errors::with_output) ::dup2(out[1], 2);
      for (const int fd : {in[0], in[1], out[0], out[1]}) ::close(fd);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    output_ = out[0];
    if (!input.empty() && ::write(in[1], input.data(), input.size()) < 0) std::abort();
    ::close(in[1]);
  }
  Program(const Program&) = delete;
  ~Program() {
    ::close(output_);
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void signal(int number) const { ::kill(pid_, number); }
  /// The next line without its end; "" when the output has ended.
  std::string line() {
    while (buffer_.find('\n') == std::string::npos && fill()) {
    }
    const std::size_t end = buffer_.find('\n');
    std::string out = buffer_.substr(0, end);
    buffer_.erase(0, end == std::string::npos ? buffer_.size() : end + 1);
    return out;
  }
  std::string rest() {
    while (fill()) {
    }
    return buffer_;
  }
  /// Exit code, or 128 + signal. Waits.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  bool fill() {
    std::array<char, 65536> bytes;
    const ssize_t n = ::read(output_, bytes.data(), bytes.size());
    if (n > 0) buffer_.append(bytes.data(), static_cast<std::size_t>(n));
    return n > 0;
  }
  pid_t pid_ = -1;
  int output_ = -1;
  std::string buffer_;
};

struct Ran {
  int code = -1;
  std::string output;  ///< stdout and stderr together
};

/// `infos WORDS...`, to its end.
inline Ran run_infos(const std::vector<std::string>& words, const std::string& input = "") {
  std::vector<std::string> all{bin_path("infos")};
  all.insert(all.end(), words.begin(), words.end());
  Program program(all, Program::Errors::with_output, input);
  Ran ran;
  ran.output = program.rest();
  ran.code = program.wait();
  return ran;
}

}  // namespace infos::test
