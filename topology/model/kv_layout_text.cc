// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <charconv>

#include "topology/model/kv_layout.h"

namespace infos {
namespace {

constexpr std::string_view kHead = "kv1;";
constexpr std::size_t kTextMax = 2048;
constexpr std::size_t kWordMax = 256;

struct Number32 {
  std::string_view key;
  std::uint32_t KvLayout::*field;
};
constexpr std::array kNumbers = {
    Number32{"layers", &KvLayout::layers},     Number32{"heads", &KvLayout::heads},
    Number32{"head_dim", &KvLayout::head_dim}, Number32{"block_tokens", &KvLayout::block_tokens},
    Number32{"ranks", &KvLayout::ranks},       Number32{"blocks", &KvLayout::blocks},
};

struct Stride {
  std::string_view key;
  std::uint64_t KvStrides::*field;
};
constexpr std::array kStrides = {
    Stride{"block", &KvStrides::block}, Stride{"layer", &KvStrides::layer},
    Stride{"head", &KvStrides::head},   Stride{"token", &KvStrides::token},
    Stride{"v", &KvStrides::v},
};

Error bad(std::string_view key, std::string_view value, std::string_view want) {
  return {ErrorCode::corrupt, fmt::format("KV layout text: {} is '{}', want {}", key.substr(0, 32),
                                          value.substr(0, 64), want)};
}

/// Words travel between ';' and '=': what could be mistaken for those becomes '_'.
std::string word(std::string_view text) {
  std::string out(text.substr(0, kWordMax));
  for (char& c : out)
    if (c < '!' || c > '~' || c == ';' || c == '=') c = '_';
  return out;
}

template <typename T>
Status number(T& out, std::string_view key, std::string_view value) {
  T parsed{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (error != std::errc() || end != value.data() + value.size())
    return bad(key, value, "a whole number");
  out = parsed;
  return {};
}

Status strides(KvStrides& out, std::string_view key, std::string_view value) {
  for (std::size_t i = 0; i < kStrides.size(); ++i) {
    const std::size_t comma = value.find(',');
    const bool last = i + 1 == kStrides.size();
    if (last != (comma == std::string_view::npos))
      return bad(key, value, "block,layer,head,token,v");
    INFOS_TRY(number(out.*kStrides[i].field, key, value.substr(0, comma)));
    if (!last) value.remove_prefix(comma + 1);
  }
  return {};
}

Status apply(KvLayout& l, std::string_view key, std::string_view value) {
  if (key == "model") return l.model = value, Status();
  if (key == "build") return l.build = value, Status();
  if (key == "dtype") {
    for (const KvDType dtype : {KvDType::f32, KvDType::f16, KvDType::bf16, KvDType::i8})
      if (value == to_string(dtype)) return l.dtype = dtype, Status();
    return bad(key, value, "f32, f16, bf16 or i8");
  }
  if (key == "data") return strides(l.data, key, value);
  if (key == "scale") return strides(l.scale, key, value);
  if (key == "scale_begin") return number(l.scale_begin, key, value);
  for (const Number32& n : kNumbers)
    if (key == n.key) return number(l.*n.field, key, value);
  return {};
}

std::string text_of(const KvStrides& s) {
  return fmt::format("{},{},{},{},{}", s.block, s.layer, s.head, s.token, s.v);
}

}  // namespace

std::string encode(const KvLayout& l) {
  std::string out(kHead);
  out +=
      fmt::format("model={};build={};dtype={}", word(l.model), word(l.build), to_string(l.dtype));
  for (const Number32& n : kNumbers) out += fmt::format(";{}={}", n.key, l.*n.field);
  out += fmt::format(";data={}", text_of(l.data));
  if (l.dtype == KvDType::i8)
    out += fmt::format(";scale={};scale_begin={}", text_of(l.scale), l.scale_begin);
  return out;
}

Result<KvLayout> decode_kv_layout(std::string_view text) {
  if (text.size() > kTextMax)
    return Error{ErrorCode::corrupt,
                 fmt::format("KV layout text: {} bytes, want at most {}", text.size(), kTextMax)};
  if (!text.starts_with(kHead))
    return Error{ErrorCode::corrupt, fmt::format("KV layout text: begins with '{}', want '{}'",
                                                 word(text.substr(0, 8)), kHead)};
  KvLayout layout;
  text.remove_prefix(kHead.size());
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(';'), text.size());
    const std::string_view item = text.substr(0, end);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos)
      return Error{ErrorCode::corrupt,
                   fmt::format("KV layout text: '{}', want key=value", word(item.substr(0, 64)))};
    INFOS_TRY(apply(layout, item.substr(0, equals), item.substr(equals + 1)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  INFOS_TRY(layout.validate());
  return layout;
}

}  // namespace infos
