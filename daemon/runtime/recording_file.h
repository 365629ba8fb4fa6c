// SPDX-License-Identifier: Apache-2.0
// Writes a recording of cores (`infosd --record`) without ever holding up the thread that steps
// them: bytes are buffered and a thread of its own writes them. A disk that fails or is too slow
// turns the recording off, with one logged error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/control/recording.h"
#include "topology/base/result.h"
#include "topology/base/units.h"

namespace infos {

struct RecordingOptions {
  std::size_t buffer_bytes_max = 64u << 20;  ///< beyond: the disk is too slow, recording ends
  Duration flush_interval = milliseconds(200);
  std::uint64_t hashes_every = 4096;  ///< steps between hashes
};

/// Thread: start() and step() on the one thread of the recorded cores.
class RecordingFile {
 public:
  /// Replaces a file of that name. Errors: io.
  static Result<std::unique_ptr<RecordingFile>> create(const std::string& path,
                                                       const RecordingOptions& options = {});
  /// Writes the final hashes and what is buffered.
  ~RecordingFile();
  RecordingFile(const RecordingFile&) = delete;
  RecordingFile& operator=(const RecordingFile&) = delete;

  void start(std::uint64_t instance, const CoreConfig& config);
  /// After a step of the core, with the effects of that step alone.
  template <typename Event, typename Effects>
  void step(std::uint64_t instance, Time now, const Event& event, const Effects& effects) {
    if (!is_on()) return;
    append(recorder_.step(instance, now, event, effects));
    if (++steps_ % options_.hashes_every == 0) append(recorder_.hashes());
  }
  /// False after an error.
  bool is_on() const;

 private:
  struct Writer;
  RecordingFile(std::unique_ptr<Writer> writer, const RecordingOptions& options);
  void append(const std::string& bytes);

  const RecordingOptions options_;
  std::unique_ptr<Writer> writer_;
  Recorder recorder_;
  std::uint64_t steps_ = 0;
};

}  // namespace infos
