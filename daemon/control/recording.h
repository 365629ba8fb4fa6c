// SPDX-License-Identifier: Apache-2.0
// Recordings: everything that cores were told, so that the same cores can be driven again. Recorder
// turns starts and events into bytes and keeps each core's running effect hash; replay() builds the
// cores anew and compares. Bytes only: files are the shell's. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/control/codec.h"

namespace infos {

/// The first bytes of a recording: "infosrec" and a little-endian u32 version.
std::string recording_header();

/// One per recording. Each call returns bytes to append to the file (after recording_header()).
class Recorder {
 public:
  std::string start(std::uint64_t instance, const CoreConfig& config);
  /// Call after the core's step, with the effects of that step alone.
  template <typename Event, typename Effects>
  std::string step(std::uint64_t instance, Time now, const Event& event, const Effects& effects) {
    RecordedEvent record{instance, now, CoreEvent(event)};
    Running& running = running_[{record.core(), instance}];
    running.hash = hash_effects(running.hash, effects);
    ++running.events;
    return frame(Record(std::move(record)));
  }
  /// The hash of every core so far; at the end, and as often as one likes.
  std::string hashes() const;

 private:
  struct Running {
    std::uint64_t events = 0;
    std::uint64_t hash = 0;
  };
  static std::string frame(const Record& record);
  std::map<std::pair<CoreKind, std::uint64_t>, Running> running_;
};

/// Takes a recording apart. A frame cut off at the end (a crash) ends the reading, and is_torn()
/// says so.
class RecordingReader {
 public:
  /// Errors: corrupt (not a recording), unsupported (version).
  static Result<RecordingReader> open(std::string_view bytes);
  bool at_end() const { return rest_.empty(); }
  bool is_torn() const { return torn_; }
  /// Requires: !at_end(). Errors: corrupt, with the byte offset and the field.
  Result<Record> next();

 private:
  explicit RecordingReader(std::string_view bytes);
  void look_ahead();
  std::string_view all_;
  std::string_view rest_;
  bool torn_ = false;
};

/// What a replay found, per core.
struct ReplayedCore {
  CoreKind core = CoreKind::gateway;
  std::uint64_t instance = 0;
  std::uint64_t events = 0;
  std::uint64_t hash = 0;      ///< of the effects computed here
  std::uint64_t compared = 0;  ///< recorded hashes that were held against ours
  std::uint64_t differing_after =
      0;  ///< events before the first recorded hash that differs; 0: none differs
};
struct ReplayReport {
  std::vector<ReplayedCore> cores;
  std::uint64_t events = 0;
  std::uint64_t hash = 0;  ///< of all cores' hashes, in order
  bool torn = false;       ///< the recording ends inside a record
  bool matches = true;     ///< every recorded hash equals ours
};
/// Builds the recorded cores, tells them what was recorded and hashes what they do.
/// Errors: corrupt (what cannot be read, an event for a core that was not started), with the place.
Result<ReplayReport> replay(std::string_view bytes);

}  // namespace infos
