// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/hf_checkpoint.h"

#include <fmt/format.h>

#include <boost/json/string.hpp>
#include <filesystem>
#include <map>
#include <set>

#include "devices/engine/checkpoint/hf_config.h"
#include "devices/engine/checkpoint/hf_names.h"
#include "devices/engine/checkpoint/json_read.h"
#include "devices/engine/checkpoint/loaded_checkpoint.h"
#include "devices/engine/checkpoint/printable.h"
#include "devices/engine/checkpoint/safetensors.h"
#include "devices/engine/checkpoint/tensor_check.h"

namespace infos {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShardsMax = 1024;
constexpr Bytes kConfigMax{1 << 20}, kTokenizerConfigMax{16 << 20}, kTokenizerMax{128 << 20},
    kIndexMax{32 << 20};

class Directory {
 public:
  explicit Directory(const std::string& path) : path_(path) {}

  Result<LoadedCheckpoint::Parts> read() {
    INFOS_TRY(read_config());
    INFOS_TRY(read_tokenizer());
    INFOS_TRY(read_weights());
    INFOS_TRY(check_tensors(parts_.config, parts_.tensors, path_));
    parts_.path = path_;
    return std::move(parts_);
  }

 private:
  std::string in(const std::string& name) const { return (fs::path(path_) / name).string(); }

  /// The text of a file that may be missing.
  Result<std::optional<std::string>> optional_text(const std::string& name, Bytes limit) const {
    auto text = read_text_file(in(name), limit);
    if (text.ok()) return std::optional(std::move(text).value());
    if (text.error().code == ErrorCode::not_found) return std::optional<std::string>();
    return std::move(text).error();
  }

  Status read_config() {
    const std::string file = in("config.json");
    parts_.config = INFOS_TRY(hf_config(INFOS_TRY(read_text_file(file, kConfigMax)), file));
    if (const auto valid = parts_.config.validate(); !valid)
      return Error{valid.error().code, fmt::format("{}: {}", file, valid.error().message)};
    const auto generation = INFOS_TRY(optional_text("generation_config.json", kConfigMax));
    if (generation) {
      auto read = INFOS_TRY(hf_generation(*generation, in("generation_config.json")));
      parts_.generation = read.defaults;
      if (!read.eos.empty()) parts_.config.eos = std::move(read.eos);
    }
    return check_ids(file);
  }

  Status check_ids(const std::string& file) const {
    auto ids = parts_.config.eos;
    ids.push_back(parts_.config.bos);
    for (const std::int32_t id : ids)
      if (id >= 0 && static_cast<std::uint32_t>(id) >= parts_.config.vocab)
        return Error{
            ErrorCode::corrupt,
            fmt::format("{}: bos_token_id or eos_token_id: is {}: want less than vocab_size, {}",
                        file, id, parts_.config.vocab)};
    return {};
  }

  Status read_tokenizer() {
    const auto config = INFOS_TRY(optional_text("tokenizer_config.json", kTokenizerConfigMax));
    if (config)
      parts_.tokenizer = INFOS_TRY(hf_tokenizer_config(*config, in("tokenizer_config.json")));
    auto jinja = INFOS_TRY(optional_text("chat_template.jinja", kConfigMax));
    if (jinja) parts_.tokenizer.chat_template = std::move(*jinja);
    auto tokenizer = INFOS_TRY(optional_text("tokenizer.json", kTokenizerMax));
    if (tokenizer) parts_.tokenizer.tokenizer_json = std::move(*tokenizer);
    return {};
  }

  Status read_weights() {
    std::error_code failed;
    if (fs::exists(in("model.safetensors"), failed)) return read_shard("model.safetensors");
    const std::string index = in("model.safetensors.index.json");
    auto text = read_text_file(index, kIndexMax);
    if (!text.ok() && text.error().code == ErrorCode::not_found)
      return Error{
          ErrorCode::not_found,
          fmt::format("{}: has neither model.safetensors nor model.safetensors.index.json", path_)};
    if (!text.ok()) return std::move(text).error();
    return read_shards(*text, index);
  }

  Status read_shards(const std::string& text, const std::string& index) {
    const auto document = INFOS_TRY(
        parse_json(text, index, {.bytes = kIndexMax.value, .depth = 8, .values = 1 << 20}));
    const auto fields = INFOS_TRY(JsonFields::of(document, index));
    if (!fields.find("weight_map") || !fields.find("weight_map")->is_object())
      return fields.error(ErrorCode::corrupt, "weight_map", "want an object");
    std::set<std::string> shards;
    std::map<std::string, std::string> placed;
    for (const auto& [key, value] : fields.find("weight_map")->get_object()) {
      const std::string name(key.data(), key.size());
      if (!value.is_string())
        return fields.error(ErrorCode::corrupt, "weight_map: " + name, "want a file name");
      const std::string file(value.get_string().data(), value.get_string().size());
      if (!is_plain_name(file))
        return fields.error(
            ErrorCode::corrupt, "weight_map: " + name,
            fmt::format("is \"{}\": want the name of a .safetensors file in the same directory",
                        file));
      shards.insert(file);
      placed.emplace(name, file);
    }
    if (shards.size() > kShardsMax)
      return fields.error(
          ErrorCode::corrupt, "weight_map",
          fmt::format("names {} files: want at most {}", shards.size(), kShardsMax));
    for (const auto& shard : shards) INFOS_TRY(read_shard(shard));
    for (const auto& [name, file] : placed) {
      const auto seen = seen_.find(name);
      if (seen == seen_.end() || seen->second != file)
        return fields.error(ErrorCode::corrupt, "weight_map: " + name,
                            fmt::format("\"{}\" does not hold that tensor", file));
    }
    return {};
  }

  static bool is_plain_name(const std::string& file) {
    return file.size() > 12 && file.size() < 256 && file.ends_with(".safetensors") &&
           file[0] != '.' && file.find('/') == std::string::npos &&
           file.find('\0') == std::string::npos;
  }

  Status read_shard(const std::string& name) {
    const std::string label = in(name);
    FileBytes file = INFOS_TRY(FileBytes::map(label));
    auto tensors = INFOS_TRY(parse_safetensors(file.bytes(), label));
    for (auto& tensor : tensors) INFOS_TRY(add(std::move(tensor), name));
    parts_.files.push_back(std::move(file));
    return {};
  }

  Status add(TensorView tensor, const std::string& shard) {
    const auto [first, is_new] = seen_.emplace(tensor.name, shard);
    if (!is_new)
      return Error{ErrorCode::corrupt, fmt::format("{}: tensor \"{}\": is in \"{}\" too", in(shard),
                                                   tensor.name, first->second)};
    // Rotary frequencies follow from the configuration; a tied output matrix is the embedding
    // table.
    if (tensor.name.ends_with(".rotary_emb.inv_freq")) return {};
    auto name = canonical_name(tensor.name);
    if (!name)
      return Error{ErrorCode::unsupported,
                   fmt::format("{}: tensor \"{}\": is not a weight of a {} model", in(shard),
                               tensor.name, to_string(parts_.config.family))};
    if (*name == "output.weight" && parts_.config.tied_embeddings) return {};
    tensor.name = std::move(*name);
    parts_.tensors.push_back(std::move(tensor));
    return {};
  }

  std::string path_;
  LoadedCheckpoint::Parts parts_;
  std::map<std::string, std::string> seen_;  ///< file's tensor name, shard
};

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_hugging_face(const std::string& directory) {
  auto parts = Directory(directory).read();
  // Errors quote names out of the files.
  if (!parts) return Error{parts.error().code, printable(parts.error().message)};
  return std::unique_ptr<Checkpoint>(std::make_unique<LoadedCheckpoint>(std::move(parts).value()));
}

}  // namespace infos
