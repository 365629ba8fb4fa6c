// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/reference/artifact.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>

namespace infos::reference {

namespace {

constexpr char kMagic[8] = {'i', 'n', 'f', 'o', 's', 'r', 'e', '1'};

/// Everything before the tensors and ops. The checksum is of all bytes after it.
struct Header {
  char magic[8];
  std::uint64_t checksum;
  std::uint32_t tensor_bytes, op_bytes;  // size of one struct: another ABI's artifacts are refused
  std::uint32_t n_tensors, n_ops;
  std::uint32_t layer_begin, layer_end, n_layers;
  std::uint32_t max_tokens, max_sequences, max_context;
};
constexpr std::size_t kSummedFrom = offsetof(Header, tensor_bytes);

std::uint64_t checksum(std::span<const std::byte> bytes) {
  const auto summed = bytes.subspan(kSummedFrom);
  return XXH64(summed.data(), summed.size(), 0);
}

}  // namespace

std::vector<std::byte> write_artifact(const Artifact& artifact) {
  const GraphCopy& g = artifact.graph;
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.tensor_bytes = sizeof(infos_tensor);
  header.op_bytes = sizeof(infos_op);
  header.n_tensors = static_cast<std::uint32_t>(g.tensors.size());
  header.n_ops = static_cast<std::uint32_t>(g.ops.size());
  header.layer_begin = g.layer_begin;
  header.layer_end = g.layer_end;
  header.n_layers = g.n_layers;
  header.max_tokens = artifact.bucket.max_tokens;
  header.max_sequences = artifact.bucket.max_sequences;
  header.max_context = artifact.bucket.max_context;
  const std::size_t tensors = g.tensors.size() * sizeof(infos_tensor);
  const std::size_t ops = g.ops.size() * sizeof(infos_op);
  std::vector<std::byte> out(sizeof header + tensors + ops);
  std::memcpy(out.data() + sizeof header, g.tensors.data(), tensors);
  std::memcpy(out.data() + sizeof header + tensors, g.ops.data(), ops);
  std::memcpy(out.data(), &header, sizeof header);
  header.checksum = checksum(out);
  std::memcpy(out.data(), &header, sizeof header);
  return out;
}

std::string read_artifact(std::span<const std::byte> bytes, Artifact* out) {
  Header header{};
  if (bytes.size() < sizeof header)
    return fmt::format("the artifact has {} bytes: want at least {}", bytes.size(), sizeof header);
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return "not a reference artifact";
  if (header.checksum != checksum(bytes)) return "the artifact's checksum does not hold";
  if (header.tensor_bytes != sizeof(infos_tensor) || header.op_bytes != sizeof(infos_op))
    return "the artifact was made for another ABI version";
  const std::uint64_t tensors = std::uint64_t{header.n_tensors} * sizeof(infos_tensor);
  const std::uint64_t ops = std::uint64_t{header.n_ops} * sizeof(infos_op);
  if (bytes.size() != sizeof header + tensors + ops)
    return fmt::format("the artifact has {} bytes: its header says {}", bytes.size(),
                       sizeof header + tensors + ops);
  Artifact artifact;
  artifact.graph.tensors.resize(header.n_tensors);
  artifact.graph.ops.resize(header.n_ops);
  if (tensors > 0)
    std::memcpy(artifact.graph.tensors.data(), bytes.data() + sizeof header, tensors);
  if (ops > 0) std::memcpy(artifact.graph.ops.data(), bytes.data() + sizeof header + tensors, ops);
  artifact.graph.layer_begin = header.layer_begin;
  artifact.graph.layer_end = header.layer_end;
  artifact.graph.n_layers = header.n_layers;
  artifact.bucket.struct_size = sizeof(infos_bucket);
  artifact.bucket.max_tokens = header.max_tokens;
  artifact.bucket.max_sequences = header.max_sequences;
  artifact.bucket.max_context = header.max_context;
  std::string problem = check_graph(artifact.graph);
  if (problem.empty()) *out = std::move(artifact);
  return problem;
}

}  // namespace infos::reference
