// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/gguf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace infos {

static_assert(std::endian::native == std::endian::little,
              "the readers load little-endian numbers as they lie");

namespace {

std::optional<std::uint64_t> scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    case GgufType::string:
    case GgufType::array:
      return std::nullopt;
  }
  return std::nullopt;
}

/// The file's tensor type numbers: those we know how to compute with, and the names of the others
/// for the error.
struct TensorType {
  std::uint32_t number;
  const char* name;
  DType dtype;
};
constexpr TensorType kTensorTypes[] = {
    {0, "f32", DType::f32},      {1, "f16", DType::f16},       {2, "q4_0", DType::q4_0},
    {3, "q4_1", DType::none},    {6, "q5_0", DType::none},     {7, "q5_1", DType::none},
    {8, "q8_0", DType::q8_0},    {9, "q8_1", DType::none},     {10, "q2_k", DType::none},
    {11, "q3_k", DType::none},   {12, "q4_k", DType::q4_k},    {13, "q5_k", DType::none},
    {14, "q6_k", DType::q6_k},   {15, "q8_k", DType::none},    {16, "iq2_xxs", DType::none},
    {17, "iq2_xs", DType::none}, {18, "iq3_xxs", DType::none}, {19, "iq1_s", DType::none},
    {20, "iq4_nl", DType::none}, {21, "iq3_s", DType::none},   {22, "iq2_s", DType::none},
    {23, "iq4_xs", DType::none}, {24, "i8", DType::i8},        {25, "i16", DType::none},
    {26, "i32", DType::i32},     {27, "i64", DType::none},     {28, "f64", DType::f64},
    {29, "iq1_m", DType::none},  {30, "bf16", DType::bf16},    {34, "tq1_0", DType::none},
    {35, "tq2_0", DType::none},  {39, "mxfp4", DType::none},
};

/// Walks the header; every read says which field it is for.
class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& label, const GgufLimits& limits)
      : bytes_(bytes), label_(label), limits_(limits) {}

  Result<GgufFile> parse();

 private:
  struct Entry {
    GgufTensor tensor;
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };

  std::uint64_t left() const { return bytes_.size() - position_; }
  Error corrupt(std::string_view field, const std::string& what) const {
    return {ErrorCode::corrupt, fmt::format("{}: {}: {}", label_, field, what)};
  }
  Error unsupported(std::string_view field, const std::string& what) const {
    return {ErrorCode::unsupported, fmt::format("{}: {}: {}", label_, field, what)};
  }
  Result<std::span<const std::byte>> take(std::string_view field, std::uint64_t count);
  template <typename T>
  Result<T> number(std::string_view field) {
    const auto raw = INFOS_TRY(take(field, sizeof(T)));
    T value;
    std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }
  Result<std::string_view> string(std::string_view field, std::uint64_t limit);
  Result<GgufType> type(std::string_view field);
  Result<GgufValue> value(std::string_view field, GgufType type, std::uint64_t depth);
  Result<GgufValue> array(std::string_view field, std::uint64_t depth);
  Status header(GgufFile& file);
  Status metadata(GgufFile& file);
  Status set_alignment(GgufFile& file) const;
  Result<Entry> tensor_entry(std::uint64_t index);
  Status tensor_directory(GgufFile& file);
  Status place_tensors(GgufFile& file, std::vector<Entry> entries) const;

  std::span<const std::byte> bytes_;
  const std::string& label_;
  const GgufLimits& limits_;
  std::uint64_t position_ = 0;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t key_count_ = 0;
};

Result<std::span<const std::byte>> Parser::take(std::string_view field, std::uint64_t count) {
  if (count > left())
    return corrupt(field, fmt::format("wants {} bytes at offset {}, but the file ends at {}", count,
                                      position_, bytes_.size()));
  const auto part = bytes_.subspan(position_, count);
  position_ += count;
  return part;
}

Result<std::string_view> Parser::string(std::string_view field, std::uint64_t limit) {
  const auto length = INFOS_TRY(number<std::uint64_t>(field));
  if (length > limit)
    return corrupt(field, fmt::format("string of {} bytes: want at most {}", length, limit));
  const auto raw = INFOS_TRY(take(field, length));
  return std::string_view(reinterpret_cast<const char*>(raw.data()), raw.size());
}

Result<GgufType> Parser::type(std::string_view field) {
  const auto number_seen = INFOS_TRY(number<std::uint32_t>(field));
  if (number_seen > static_cast<std::uint32_t>(GgufType::f64))
    return corrupt(field, fmt::format("value type {}: want 0 to 12", number_seen));
  return static_cast<GgufType>(number_seen);
}

Result<GgufValue> Parser::value(std::string_view field, GgufType type, std::uint64_t depth) {
  GgufValue out;
  out.type = type;
  if (type == GgufType::array) return array(field, depth);
  if (type == GgufType::string) {
    const auto text = INFOS_TRY(string(field, limits_.string_bytes));
    out.bytes = std::as_bytes(std::span(text));
    return out;
  }
  out.bytes = INFOS_TRY(take(field, *scalar_bytes(type)));
  if (type == GgufType::boolean && static_cast<unsigned>(out.bytes[0]) > 1)
    return corrupt(field,
                   fmt::format("bool is {}: want 0 or 1", static_cast<unsigned>(out.bytes[0])));
  return out;
}

Result<GgufValue> Parser::array(std::string_view field, std::uint64_t depth) {
  if (depth >= limits_.array_nesting)
    return corrupt(field, fmt::format("arrays nested deeper than {}", limits_.array_nesting));
  GgufValue out;
  out.type = GgufType::array;
  out.element = INFOS_TRY(type(field));
  out.count = INFOS_TRY(number<std::uint64_t>(field));
  if (out.count > limits_.array_elements)
    return corrupt(field, fmt::format("array of {} elements: want at most {}", out.count,
                                      limits_.array_elements));
  const std::uint64_t start = position_;
  if (const auto size = scalar_bytes(out.element)) {
    out.bytes = INFOS_TRY(take(field, out.count * *size));
    if (out.element == GgufType::boolean)
      for (const std::byte b : out.bytes)
        if (static_cast<unsigned>(b) > 1)
          return corrupt(field, "array of bool holds a byte that is neither 0 nor 1");
    return out;
  }
  for (std::uint64_t i = 0; i < out.count; ++i) INFOS_TRY(value(field, out.element, depth + 1));
  out.bytes = bytes_.subspan(start, position_ - start);
  return out;
}

Status Parser::header(GgufFile& file) {
  const auto magic = INFOS_TRY(take("magic", 4));
  if (std::memcmp(magic.data(), "GGUF", 4) != 0)
    return corrupt("magic", fmt::format("bytes {:02x} {:02x} {:02x} {:02x}: want \"GGUF\"",
                                        magic[0], magic[1], magic[2], magic[3]));
  file.version = INFOS_TRY(number<std::uint32_t>("version"));
  if (file.version != 0 && (file.version & 0xFFFF) == 0)
    return unsupported(
        "version", fmt::format("{:#x}: the file is big endian; want little endian", file.version));
  if (file.version != 2 && file.version != 3)
    return unsupported("version", fmt::format("{}: want 2 or 3", file.version));
  tensor_count_ = INFOS_TRY(number<std::uint64_t>("tensor count"));
  key_count_ = INFOS_TRY(number<std::uint64_t>("metadata count"));
  if (tensor_count_ > limits_.tensors)
    return corrupt("tensor count",
                   fmt::format("{}: want at most {}", tensor_count_, limits_.tensors));
  if (key_count_ > limits_.metadata_keys)
    return corrupt("metadata count",
                   fmt::format("{}: want at most {}", key_count_, limits_.metadata_keys));
  return {};
}

Status Parser::metadata(GgufFile& file) {
  for (std::uint64_t i = 0; i < key_count_; ++i) {
    const auto key = INFOS_TRY(string(fmt::format("metadata key {}", i), limits_.key_bytes));
    if (key.empty()) return corrupt(fmt::format("metadata key {}", i), "is empty");
    const auto key_type = INFOS_TRY(type(key));
    const auto entry = INFOS_TRY(value(key, key_type, 0));
    if (!file.metadata.emplace(key, entry).second) return corrupt(key, "the key appears twice");
  }
  return {};
}

Status Parser::set_alignment(GgufFile& file) const {
  const auto seen = INFOS_TRY(file.get_unsigned("general.alignment"));
  if (!seen) return {};
  if (*seen < 8 || *seen > (1 << 20) || !std::has_single_bit(*seen))
    return corrupt("general.alignment",
                   fmt::format("{}: want a power of two from 8 to 1048576", *seen));
  file.alignment = *seen;
  return {};
}

Result<Parser::Entry> Parser::tensor_entry(std::uint64_t index) {
  Entry entry;
  entry.tensor.name = INFOS_TRY(string(fmt::format("tensor {} name", index), limits_.key_bytes));
  const std::string field = fmt::format("tensor {} \"{}\"", index, entry.tensor.name);
  if (entry.tensor.name.empty()) return corrupt(field, "the name is empty");
  const auto rank = INFOS_TRY(number<std::uint32_t>(field));
  if (rank < 1 || rank > 4) return corrupt(field, fmt::format("{} dimensions: want 1 to 4", rank));
  std::uint64_t elements = 1;
  for (std::uint32_t d = 0; d < rank; ++d) {
    const auto dim = INFOS_TRY(number<std::uint64_t>(field));
    // 2^56 elements of at most 8 bytes cannot overflow 64 bits, and no file is that large.
    if (dim == 0 || dim > (1ULL << 56) / elements)
      return corrupt(
          field, fmt::format("dimension {} is {}: want 1 to {}", d, dim, (1ULL << 56) / elements));
    elements *= dim;
    entry.tensor.dims.push_back(static_cast<std::int64_t>(dim));
  }
  const auto number_seen = INFOS_TRY(number<std::uint32_t>(field));
  const auto* known = std::find_if(std::begin(kTensorTypes), std::end(kTensorTypes),
                                   [&](const TensorType& t) { return t.number == number_seen; });
  if (known == std::end(kTensorTypes))
    return corrupt(field, fmt::format("tensor type {} is not known", number_seen));
  if (known->dtype == DType::none)
    return unsupported(
        field,
        fmt::format("tensor type {}: want f32, f16, bf16, q8_0, q4_0, q4_k or q6_k", known->name));
  entry.tensor.dtype = known->dtype;
  const auto block = block_shape(known->dtype);
  if (entry.tensor.dims[0] % block.elements != 0)
    return corrupt(field, fmt::format("rows of {} elements: {} wants a multiple of {}",
                                      entry.tensor.dims[0], known->name, block.elements));
  entry.size = elements / block.elements * block.bytes;
  entry.offset = INFOS_TRY(number<std::uint64_t>(field));
  std::reverse(entry.tensor.dims.begin(), entry.tensor.dims.end());
  return entry;
}

Status Parser::tensor_directory(GgufFile& file) {
  std::vector<Entry> entries;
  for (std::uint64_t i = 0; i < tensor_count_; ++i) entries.push_back(INFOS_TRY(tensor_entry(i)));
  return place_tensors(file, std::move(entries));
}

Status Parser::place_tensors(GgufFile& file, std::vector<Entry> entries) const {
  const std::uint64_t start = (position_ + file.alignment - 1) / file.alignment * file.alignment;
  const std::uint64_t room = start <= bytes_.size() ? bytes_.size() - start : 0;
  for (Entry& entry : entries) {
    const std::string field = fmt::format("tensor \"{}\"", entry.tensor.name);
    if (entry.offset % file.alignment != 0)
      return corrupt(field, fmt::format("offset {} is not a multiple of the alignment {}",
                                        entry.offset, file.alignment));
    if (entry.size > room || entry.offset > room - entry.size)
      return corrupt(
          field,
          fmt::format("{} bytes at offset {} lie past the end of the data, which has {} bytes",
                      entry.size, entry.offset, room));
    entry.tensor.data = bytes_.subspan(start + entry.offset, entry.size);
  }
  std::vector<const Entry*> order;
  for (const Entry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(),
            [](const Entry* a, const Entry* b) { return a->tensor.name < b->tensor.name; });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (order[i - 1]->tensor.name == order[i]->tensor.name)
      return corrupt(fmt::format("tensor \"{}\"", order[i]->tensor.name), "the name appears twice");
  std::sort(order.begin(), order.end(),
            [](const Entry* a, const Entry* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (order[i - 1]->offset + order[i - 1]->size > order[i]->offset)
      return corrupt(fmt::format("tensor \"{}\"", order[i]->tensor.name),
                     fmt::format("its bytes overlap those of \"{}\"", order[i - 1]->tensor.name));
  for (Entry& entry : entries) file.tensors.push_back(std::move(entry.tensor));
  return {};
}

Result<GgufFile> Parser::parse() {
  GgufFile file;
  file.label = label_;
  INFOS_TRY(header(file));
  INFOS_TRY(metadata(file));
  INFOS_TRY(set_alignment(file));
  INFOS_TRY(tensor_directory(file));
  return file;
}

}  // namespace

Result<GgufFile> parse_gguf(std::span<const std::byte> bytes, const std::string& label,
                            const GgufLimits& limits) {
  return Parser(bytes, label, limits).parse();
}

}  // namespace infos
