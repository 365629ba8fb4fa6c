// SPDX-License-Identifier: Apache-2.0
// From text to SpecSet: walks each document's tree along the declared keys and gathers every error.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "topology/spec/fields.h"
#include "topology/spec/spec.h"
#include "topology/spec/yaml_tree.h"

namespace infos {
namespace {

/// Gathers errors of all files; keeps the first kSpecErrorsMax by place.
class Report {
 public:
  explicit Report(std::span<const SpecFile> files) : files_(files) {}
  void add(const SpecPlace& place, std::string message) {
    errors_.emplace_back(place, std::move(message));
  }
  /// Documents begin here; places before the next call belong to this one.
  void begin_document(const SpecPlace& place) { documents_.push_back(place); }
  /// Whether the document that holds `place` has an error so far.
  bool has_error_near(const SpecPlace& place) const {
    const std::size_t document = document_of(place);
    return std::any_of(errors_.begin(), errors_.end(),
                       [&](const auto& e) { return document_of(e.first) == document; });
  }
  std::vector<SpecError> take() {
    std::stable_sort(errors_.begin(), errors_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<SpecError> out;
    for (auto& [place, message] : errors_) {
      if (out.size() == kSpecErrorsMax) {
        out.back().message += fmt::format(" (and {} more errors)", errors_.size() - kSpecErrorsMax);
        break;
      }
      out.push_back({files_[place.file].name, place.line, place.column, printable(message)});
    }
    return out;
  }

 private:
  std::size_t document_of(const SpecPlace& place) const {
    const auto after = std::upper_bound(documents_.begin(), documents_.end(), place);
    return static_cast<std::size_t>(after - documents_.begin());
  }

  std::span<const SpecFile> files_;
  std::vector<SpecPlace> documents_;  ///< ascending
  std::vector<std::pair<SpecPlace, std::string>> errors_;
};

/// Reads one map.
class FieldReader final : public Fields {
 public:
  /// Requires: node is a map.
  FieldReader(const YamlNode& node, std::string path, std::uint32_t file, Report& report)
      : node_(node), path_(std::move(path)), file_(file), report_(report) {
    std::set<std::string> keys;
    for (const YamlKey& key : node.keys)
      if (!keys.insert(key.text).second)
        report_.add(at(key), fmt::format("key '{}' is given twice in {}, want it once", shown(key),
                                         path_or_document()));
  }

  /// Reads what `body` declares, then refuses every other key.
  void read(const Body& body) {
    body(*this);
    std::set<std::string> reported;
    for (const YamlKey& key : node_.keys) {
      if (std::find(declared_.begin(), declared_.end(), key.text) != declared_.end()) continue;
      if (!reported.insert(key.text).second) continue;
      const std::string near = nearest(key.text, declared_);
      report_.add(at(key),
                  fmt::format("unknown key '{}' in {}{}, want {}", shown(key), path_or_document(),
                              near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near),
                              any_of(declared_)));
    }
  }

  void scalar(const char* key, const Note& note, const Scalar& scalar) override {
    if (const YamlNode* value = find(key, note)) set(*value, join(key), scalar);
  }
  void scalars(const char* key, const Note& note, const Scalar& scalar) override {
    for_items(key, note,
              [&](const YamlNode& item, const std::string& path) { set(item, path, scalar); });
  }
  void object(const char* key, const Note& note, const Body& body) override {
    if (const YamlNode* value = find(key, note)) read_map(*value, join(key), body);
  }
  void objects(const char* key, const Note& note, const Body& body) override {
    for_items(key, note,
              [&](const YamlNode& item, const std::string& path) { read_map(item, path, body); });
  }
  SpecPlace place() const override { return at(node_); }

 private:
  template <typename Marked>
  SpecPlace at(const Marked& marked) const {
    return {file_, marked.line, marked.column};
  }
  static std::string shown(const YamlKey& key) {
    YamlNode node;
    node.kind = YamlNode::Kind::scalar;
    node.text = key.text;
    const std::string quoted = seen(node);
    return quoted.substr(1, quoted.size() - 2);
  }
  std::string join(const char* key) const { return path_.empty() ? key : path_ + "." + key; }
  std::string path_or_document() const { return path_.empty() ? "the document" : path_; }

  const YamlNode* find(const char* key, const Note& note) {
    declared_.emplace_back(key);
    for (std::size_t i = 0; i < node_.keys.size(); ++i)
      if (node_.keys[i].text == key) return &node_.values[i];
    if (note.presence == Presence::required)
      report_.add(at(node_), fmt::format("{} has no key '{}', want one: {}", path_or_document(),
                                         key, note.meaning));
    return nullptr;
  }
  void set(const YamlNode& value, const std::string& path, const Scalar& scalar) {
    const Status status = scalar.set(value, at(value));
    if (!status.ok()) report_.add(at(value), fmt::format("{}: {}", path, status.error().message));
  }
  void read_map(const YamlNode& value, const std::string& path, const Body& body) {
    if (value.kind != YamlNode::Kind::map)
      return report_.add(at(value), fmt::format("{}: saw {}, want a map", path, seen(value)));
    FieldReader(value, path, file_, report_).read(body);
  }
  template <typename Each>
  void for_items(const char* key, const Note& note, const Each& each) {
    const YamlNode* value = find(key, note);
    if (!value) return;
    if (value->kind != YamlNode::Kind::list)
      return report_.add(at(*value),
                         fmt::format("{}: saw {}, want a list", join(key), seen(*value)));
    if (value->values.empty() && note.presence == Presence::required)
      report_.add(at(*value),
                  fmt::format("{}: saw an empty list, want at least one item", join(key)));
    for (std::size_t i = 0; i < value->values.size(); ++i)
      each(value->values[i], fmt::format("{}[{}]", join(key), i));
  }

  const YamlNode& node_;
  std::string path_;
  std::uint32_t file_;
  Report& report_;
  std::vector<std::string> declared_;
};

const YamlNode* value_of(const YamlNode& map, std::string_view key) {
  for (std::size_t i = 0; i < map.keys.size(); ++i)
    if (map.keys[i].text == key) return &map.values[i];
  return nullptr;
}

/// The kind named by the document, or null with the error reported.
const SpecKind* kind_of(const YamlNode& document, std::uint32_t file, Report& report) {
  const SpecPlace place{file, document.line, document.column};
  std::vector<std::string> words;
  for (const SpecKind& kind : spec_kinds()) words.emplace_back(kind.name);
  if (document.kind != YamlNode::Kind::map) {
    report.add(place,
               fmt::format("saw {}, want a document with apiVersion, kind, metadata and spec",
                           seen(document)));
    return nullptr;
  }
  const YamlNode* kind_node = value_of(document, "kind");
  if (!kind_node) {
    report.add(place, fmt::format("the document has no key 'kind', want one: {}", any_of(words)));
    return nullptr;
  }
  if (kind_node->kind == YamlNode::Kind::scalar)
    for (const SpecKind& kind : spec_kinds())
      if (kind_node->text == kind.name) return &kind;
  report.add({file, kind_node->line, kind_node->column},
             fmt::format("kind: saw {}, want {}", seen(*kind_node), any_of(words)));
  return nullptr;
}

void read_document(const YamlNode& document, std::uint32_t file, SpecSet& set, Report& report) {
  report.begin_document({file, document.line, document.column});
  const SpecKind* kind = kind_of(document, file, report);
  if (!kind) return;
  std::string version, kind_word;
  SpecRef name;
  FieldReader(document, "", file, report).read([&](Fields& f) {
    f.word("apiVersion", version, {"infos/v1"}, required("version of this language"));
    f.text("kind", kind_word, TextRule::any, required("what this document describes"));
    f.object("metadata", required("what it is called"), [&](Fields& metadata) {
      metadata.reference("name", name, kind->name_rule, required("unique among its kind"));
    });
    f.object("spec", required("what it is"),
             [&](Fields& spec) { kind->describe(spec, set, name); });
  });
}

}  // namespace

std::string SpecError::text() const {
  return fmt::format("{}:{}:{}: {}", file, line, column, message);
}

std::string SpecOutcome::error_text() const {
  std::string out;
  for (const SpecError& error : errors) out += error.text() + "\n";
  return out;
}

SpecOutcome parse_spec(std::span<const SpecFile> files, SpecReferences references) {
  SpecOutcome outcome;
  Report report(files);
  for (std::uint32_t file = 0; file < files.size(); ++file) {
    const YamlText yaml = read_yaml(files[file].text);
    const bool only_empty =
        std::all_of(yaml.documents.begin(), yaml.documents.end(),
                    [](const YamlNode& d) { return d.kind == YamlNode::Kind::null; });
    if (only_empty && !yaml.problem)
      report.add({file, 1, 1},
                 "the file is empty, want a document with apiVersion, kind, metadata and spec");
    for (const YamlNode& document : yaml.documents)
      if (document.kind != YamlNode::Kind::null) read_document(document, file, outcome.set, report);
    if (yaml.problem)
      report.add({file, yaml.problem->line, yaml.problem->column}, yaml.problem->message);
  }
  std::vector<std::pair<SpecPlace, std::string>> together;
  check_set(outcome.set, references,
            [&](const SpecPlace& place, Certainty certainty, std::string message) {
              if (certainty == Certainty::certain || !report.has_error_near(place))
                together.emplace_back(place, std::move(message));
            });
  for (auto& [place, message] : together) report.add(place, std::move(message));
  outcome.errors = report.take();
  return outcome;
}

}  // namespace infos
