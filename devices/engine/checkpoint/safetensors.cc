// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/string.hpp>
#include <cstring>

#include "devices/engine/checkpoint/json_read.h"

namespace infos {
namespace {

namespace json = boost::json;

constexpr std::size_t kRankMax = 8;

struct Name {
  const char* text;
  DType dtype;
};
constexpr Name kDtypes[] = {{"F32", DType::f32}, {"F16", DType::f16}, {"BF16", DType::bf16},
                            {"F64", DType::f64}, {"I32", DType::i32}, {"I8", DType::i8}};

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// One entry of the directory; `fields` knows the file and the tensor's name.
class Entry {
 public:
  Entry(const JsonFields& fields, std::span<const std::byte> data) : fields_(fields), data_(data) {}

  Result<TensorView> read(std::string_view name) {
    TensorView out;
    out.name = std::string(name);
    out.dtype = INFOS_TRY(dtype());
    out.dims = INFOS_TRY(shape());
    const Range range = INFOS_TRY(offsets());
    const std::uint64_t unit = block_shape(out.dtype).bytes;
    const std::uint64_t wanted = elements_ * unit;
    if (range.end - range.begin != wanted)
      return fields_.error(ErrorCode::corrupt, "data_offsets",
                           fmt::format("span {} bytes: want {}, as dtype and shape say",
                                       range.end - range.begin, wanted));
    out.data = data_.subspan(range.begin, wanted);
    return out;
  }

 private:
  Result<DType> dtype() const {
    const auto text = INFOS_TRY(fields_.text("dtype"));
    if (!text) return fields_.error(ErrorCode::corrupt, "dtype", "the key is missing");
    for (const auto& known : kDtypes)
      if (*text == known.text) return known.dtype;
    return fields_.error(ErrorCode::unsupported, "dtype",
                         fmt::format("is \"{}\": want F32, F16 or BF16", *text));
  }

  Result<std::vector<std::int64_t>> shape() {
    const auto* list = fields_.find("shape");
    if (!list || !list->is_array() || list->get_array().size() > kRankMax)
      return fields_.error(ErrorCode::corrupt, "shape",
                           fmt::format("want a list of at most {} integers", kRankMax));
    std::vector<std::int64_t> dims;
    for (const auto& item : list->get_array()) {
      const bool good = item.is_int64() && item.get_int64() >= 0;
      const auto dim = good ? static_cast<std::uint64_t>(item.get_int64()) : 0;
      // No file has 2^56 elements, and below that bytes cannot overflow.
      if (!good || (dim != 0 && elements_ > (1ULL << 56) / dim))
        return fields_.error(ErrorCode::corrupt, "shape",
                             fmt::format("dimension {} is out of range", dims.size()));
      elements_ *= dim;
      dims.push_back(static_cast<std::int64_t>(dim));
    }
    return dims;
  }

  Result<Range> offsets() const {
    const auto* list = fields_.find("data_offsets");
    if (!list || !list->is_array() || list->get_array().size() != 2 ||
        !list->get_array()[0].is_int64() || !list->get_array()[1].is_int64())
      return fields_.error(ErrorCode::corrupt, "data_offsets", "want a list of two integers");
    const std::int64_t begin = list->get_array()[0].get_int64(),
                       end = list->get_array()[1].get_int64();
    if (begin < 0 || end < begin || static_cast<std::uint64_t>(end) > data_.size())
      return fields_.error(
          ErrorCode::corrupt, "data_offsets",
          fmt::format("are [{}, {}]: want them rising and within the {} bytes of data", begin, end,
                      data_.size()));
    return Range{static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end)};
  }

  const JsonFields& fields_;
  std::span<const std::byte> data_;
  std::uint64_t elements_ = 1;
};

Status check_tiling(std::vector<TensorView>& tensors, std::span<const std::byte> data,
                    const std::string& label) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorView& a, const TensorView& b) {
    return a.data.data() != b.data.data() ? a.data.data() < b.data.data()
                                          : a.data.size() < b.data.size();
  });
  std::uint64_t at = 0;
  for (const auto& tensor : tensors) {
    const auto begin = static_cast<std::uint64_t>(tensor.data.data() - data.data());
    if (begin != at)
      return Error{ErrorCode::corrupt,
                   fmt::format("{}: tensor \"{}\": data_offsets: begin at {}: want {}, {}", label,
                               tensor.name, begin, at,
                               begin < at ? "they overlap the tensor before"
                                          : "there is a hole before them")};
    const std::uint64_t unit = block_shape(tensor.dtype).bytes;
    if (reinterpret_cast<std::uintptr_t>(tensor.data.data()) % unit != 0)
      return Error{
          ErrorCode::corrupt,
          fmt::format("{}: tensor \"{}\": data_offsets: begin at {}, which is not a multiple "
                      "of {} in the file: pad the header",
                      label, tensor.name, begin, unit)};
    at += tensor.data.size();
  }
  if (at != data.size())
    return Error{ErrorCode::corrupt,
                 fmt::format("{}: the tensors end at {}, but there are {} bytes of data", label, at,
                             data.size())};
  return {};
}

Status check_metadata(const json::value& value, const std::string& label) {
  const auto fields = INFOS_TRY(JsonFields::of(value, label + ": __metadata__"));
  for (const auto& [key, text] : value.get_object())
    if (!text.is_string())
      return fields.error(ErrorCode::corrupt, std::string_view(key.data(), key.size()),
                          "want a string");
  return {};
}

}  // namespace

Result<std::vector<TensorView>> parse_safetensors(std::span<const std::byte> bytes,
                                                  const std::string& label,
                                                  const SafetensorsLimits& limits) {
  if (bytes.size() < 8)
    return Error{ErrorCode::corrupt,
                 fmt::format("{}: header length: the file has {} bytes: want at least 8", label,
                             bytes.size())};
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const std::uint64_t most = std::min<std::uint64_t>(limits.header_bytes, bytes.size() - 8);
  if (length > most)
    return Error{ErrorCode::corrupt,
                 fmt::format("{}: header length: is {}: want at most {}", label, length, most)};
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  const auto data = bytes.subspan(8 + length);
  const JsonLimits json_limits{
      .bytes = limits.header_bytes, .depth = 8, .values = limits.tensors * 16};
  const auto document = INFOS_TRY(parse_json(text, label + ": header", json_limits));
  INFOS_TRY(JsonFields::of(document, label + ": header"));
  std::vector<TensorView> tensors;
  for (const auto& [key, value] : document.get_object()) {
    const std::string_view name(key.data(), key.size());
    if (name == "__metadata__") {
      INFOS_TRY(check_metadata(value, label));
      continue;
    }
    const auto fields =
        INFOS_TRY(JsonFields::of(value, fmt::format("{}: tensor \"{}\"", label, name)));
    tensors.push_back(INFOS_TRY(Entry(fields, data).read(name)));
  }
  INFOS_TRY(check_tiling(tensors, data, label));
  return tensors;
}

}  // namespace infos
