// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "tests/transports/conformance.h"

namespace infos::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kRole = "INFOS_CONFORMANCE_PEER";
constexpr int kPeerIn = 3, kPeerOut = 4;  // the peer's descriptors

std::string to_hex(const std::string& text) {
  std::string out;
  for (const unsigned char c : text) {
    out += "0123456789abcdef"[c >> 4];
    out += "0123456789abcdef"[c & 15];
  }
  return out;
}

std::string from_hex(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

void write_line(int fd, std::string line) {
  line += '\n';
  INFOS_CHECK(write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
}

std::vector<pollfd> armed(const std::vector<Transport*>& transports) {
  std::vector<pollfd> waits;
  for (Transport* transport : transports) {
    if (!transport->arm()) return {};
    waits.push_back({transport->wait_fd(), POLLIN, 0});
  }
  return waits;
}

}  // namespace

void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }

std::unique_ptr<Transport> TransportConformance::make() const {
  auto made = GetParam().make();
  if (!made.ok()) {
    ADD_FAILURE() << made.error().message;
    std::abort();
  }
  return std::move(made).value();
}

Memory make_memory(Transport& transport, std::uint64_t bytes) {
  Memory memory;
  const auto region = transport.allocate(bytes, memory.bytes);
  INFOS_CHECK(region.ok());
  memory.region = *region;
  return memory;
}

void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9E3779B97F4A7C15ULL + 1;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    std::memcpy(bytes.data() + i, &state, 8);
  }
  for (; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(seed * 31 + i);
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

bool all_are(std::span<const std::byte> bytes, std::byte value) {
  return bytes.empty() ||
         (bytes[0] == value && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

std::size_t Verdicts::ended() const {
  std::size_t sum = 0;
  for (const std::size_t count : counts_) sum += count;
  return sum;
}

std::string Verdicts::text() const {
  std::string out = std::to_string(given_) + " given";
  for (std::size_t i = 0; i < 8; ++i)
    if (counts_[i] > 0)
      out += ", " + std::to_string(counts_[i]) + " " + to_string(static_cast<Verdict>(i));
  return out;
}

void Pump::turn() const {
  std::size_t calls = 0;
  for (Transport* transport : transports_) calls += transport->progress();
  if (calls > 0) return;
  std::vector<pollfd> waits = armed(transports_);
  if (!waits.empty()) poll(waits.data(), waits.size(), 5);
}

bool Pump::until(const std::function<bool()>& done) const {
  const auto limit = Clock::now() + std::chrono::seconds(30);
  while (!done()) {
    if (Clock::now() > limit) return false;
    turn();
  }
  return true;
}

void Pump::a_while() const {
  const auto end = Clock::now() + std::chrono::milliseconds(50);
  while (Clock::now() < end) turn();
}

Pair make_pair(std::unique_ptr<Transport> a, std::unique_ptr<Transport> b, std::uint64_t bytes) {
  Pair pair;
  pair.of_a = make_memory(*a, bytes);
  pair.of_b = make_memory(*b, bytes);
  pair.read_grant = b->grant(pair.of_b.region, 0, bytes, Access::read).value();
  pair.write_grant = b->grant(pair.of_b.region, 0, bytes, Access::write).value();
  pair.b_of_a = a->connect(b->address()).value();
  pair.readable = a->open_remote(pair.b_of_a, b->key(pair.read_grant)).value();
  pair.writable = a->open_remote(pair.b_of_a, b->key(pair.write_grant)).value();
  pair.a = std::move(a);
  pair.b = std::move(b);
  return pair;
}

// ---- the other process ----

PeerProcess::PeerProcess() {
  int in[2], out[2];
  INFOS_CHECK(pipe2(in, O_CLOEXEC) == 0);
  INFOS_CHECK(pipe2(out, O_CLOEXEC) == 0);
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = test->name();
  const std::string filter = std::string("--gtest_filter=") + test->test_suite_name() +
                             ".TwoProcesses_MoveBytes" + name.substr(name.find('/'));
  std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string role = std::string(kRole) + "=1";
  std::vector<char*> environment;
  for (char** e = environ; *e != nullptr; ++e) environment.push_back(*e);
  environment.push_back(const_cast<char*>(role.c_str()));
  environment.push_back(nullptr);
  char* arguments[] = {self.data(), const_cast<char*>(filter.c_str()),
                       const_cast<char*>("--gtest_brief=1"), nullptr};
  const int parent = getpid();
  pid_ = fork();
  INFOS_CHECK(pid_ >= 0);
  if (pid_ == 0) {  // only calls that are safe after fork
    const int from_parent = fcntl(in[0], F_DUPFD, 10), to_parent = fcntl(out[1], F_DUPFD, 10);
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    dup2(from_parent, kPeerIn);
    dup2(to_parent, kPeerOut);
    for (int fd = kPeerOut + 1; fd < 256; ++fd) close(fd);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent) execve(self.c_str(), arguments, environment.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
  std::string line;
  if (!read_line(&line, 30'000)) {
    ADD_FAILURE() << "the peer process did not come up";
    std::abort();
  }
  std::istringstream words(line);
  words >> address_ >> read_key_ >> write_key_;
  address_ = from_hex(address_);
  read_key_ = from_hex(read_key_);
  write_key_ = from_hex(write_key_);
}

PeerProcess::~PeerProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    reap();
  }
  close(to_);
  close(from_);
}

void PeerProcess::say(const std::string& line) const { write_line(to_, line); }

bool PeerProcess::read_line(std::string* line, int timeout_ms) {
  while (true) {
    const std::size_t end = unread_.find('\n');
    if (end != std::string::npos) {
      *line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return true;
    }
    pollfd wait{from_, POLLIN, 0};
    if (poll(&wait, 1, timeout_ms) <= 0) return false;
    char buffer[4096];
    const ssize_t got = read(from_, buffer, sizeof buffer);
    if (got <= 0) return false;
    unread_.append(buffer, static_cast<std::size_t>(got));
  }
}

void PeerProcess::write_into(const std::string& address, const std::string& key, int times) {
  say("write " + to_hex(address) + " " + to_hex(key) + " " + std::to_string(times));
}

bool PeerProcess::has_written() {
  std::string line;
  return read_line(&line, 0);
}

void PeerProcess::signal(int number) const { INFOS_CHECK(kill(pid_, number) == 0); }

void PeerProcess::reap() {
  INFOS_CHECK(waitpid(pid_, nullptr, 0) == pid_);
  pid_ = 0;
}

bool is_peer_process() { return std::getenv(kRole) != nullptr; }

void serve_as_peer(std::unique_ptr<Transport> transport) {
  const Memory memory = make_memory(*transport, PeerProcess::kBytes);
  fill(memory.bytes, 7);
  const auto grant = [&](Access access) {
    return transport->grant(memory.region, 0, PeerProcess::kBytes, access).value();
  };
  write_line(kPeerOut, to_hex(transport->address()) + " " +
                           to_hex(transport->key(grant(Access::read))) + " " +
                           to_hex(transport->key(grant(Access::write))));
  fcntl(kPeerIn, F_SETFL, O_NONBLOCK);
  std::string unread;
  Verdicts puts;
  bool told = true;
  while (true) {
    const bool idle = transport->progress() == 0 && transport->arm();
    pollfd waits[] = {{kPeerIn, POLLIN, 0}, {transport->wait_fd(), POLLIN, 0}};
    poll(waits, 2, idle ? 5 : 0);
    char buffer[4096];
    const ssize_t got = read(kPeerIn, buffer, sizeof buffer);
    if (got == 0) return;
    if (got > 0) unread.append(buffer, static_cast<std::size_t>(got));
    if (!told && puts.all_ended()) {
      write_line(kPeerOut, puts.text());
      told = true;
    }
    const std::size_t end = unread.find('\n');
    if (end == std::string::npos) continue;
    std::istringstream words(unread.substr(0, end));
    unread.erase(0, end + 1);
    std::string verb, address, key;
    int times = 0;
    words >> verb >> address >> key >> times;
    const auto peer = transport->connect(from_hex(address));
    INFOS_CHECK(peer.ok());
    const auto remote = transport->open_remote(*peer, from_hex(key));
    INFOS_CHECK(remote.ok());
    const Piece all{0, 0, PeerProcess::kBytes};
    for (int i = 0; i < times; ++i) transport->put(*remote, memory.region, {&all, 1}, puts.done());
    told = false;
  }
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    (void)entry;
    ++count;
  }
  return count;
}

}  // namespace infos::test
