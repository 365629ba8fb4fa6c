// SPDX-License-Identifier: Apache-2.0
// How the keys of the spec are declared: each struct has one function `describe(Fields&, T&)` with
// one line per key. The same line reads the key (FieldReader) and documents it (FieldLister), so
// that a key is added in one place. Internal to topology/spec.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "topology/spec/spec.h"
#include "topology/spec/yaml_tree.h"

namespace infos {

enum class Presence { optional, required };
enum class Acted { yes, not_yet };

/// What the reference says about a key.
struct Note {
  Note(const char* text) : meaning(text) {}  // NOLINT: a bare text is the usual note
  const char* meaning;
  Presence presence = Presence::optional;
  Acted acted = Acted::yes;
};
inline Note required(Note note) {
  note.presence = Presence::required;
  return note;
}
inline Note not_yet(Note note) {
  note.acted = Acted::not_yet;
  return note;
}

/// A value that is one word: how it is described, its default as text, and how it is set.
struct Scalar {
  std::string type;      ///< for the reference: "duration", "`a` or `b`"
  std::string fallback;  ///< default as text; empty: none
  std::function<Status(const YamlNode&, const SpecPlace&)>
      set;  ///< error message: what was seen, what is allowed
};

/// What a text may be.
enum class TextRule { any, name, model_name, place, path, address, url };

class Fields {
 public:
  using Body = std::function<void(Fields&)>;
  virtual ~Fields() = default;

  // The four ways a key can be shaped; FieldReader and FieldLister implement them.
  virtual void scalar(const char* key, const Note& note, const Scalar& scalar) = 0;
  virtual void scalars(const char* key, const Note& note, const Scalar& scalar) = 0;
  virtual void object(const char* key, const Note& note, const Body& body) = 0;
  /// `body` is called once for each item, and must begin by making room for it.
  virtual void objects(const char* key, const Note& note, const Body& body) = 0;
  /// Where the map that is being read begins.
  virtual SpecPlace place() const = 0;

  // The types of single values.
  void text(const char* key, std::string& out, TextRule rule, const Note& note);
  void texts(const char* key, std::vector<std::string>& out, TextRule rule, const Note& note);
  void reference(const char* key, SpecRef& out, TextRule rule, const Note& note);
  void references(const char* key, std::vector<SpecRef>& out, TextRule rule, const Note& note);
  void flag(const char* key, bool& out, const Note& note);
  void real(const char* key, double& out, double low, double high, const Note& note);
  void real(const char* key, std::optional<double>& out, double low, double high, const Note& note);
  void bytes(const char* key, std::optional<Bytes>& out, const Note& note);
  void duration(const char* key, Duration& out, const Note& note);
  void duration(const char* key, std::optional<Duration>& out, const Note& note);
  void bandwidth(const char* key, std::optional<Bandwidth>& out, const Note& note);
  void cores(const char* key, CoreList& out, const Note& note);
  void word(const char* key, std::string& out, std::vector<std::string> words, const Note& note);

  /// Whole numbers in [low, high].
  template <typename N>
  void count(const char* key, N& out, std::uint64_t low, std::uint64_t high, const Note& note) {
    whole(
        key, low, high, std::to_string(out), [&out](std::uint64_t n) { out = static_cast<N>(n); },
        note);
  }
  template <typename N>
  void count(const char* key, std::optional<N>& out, std::uint64_t low, std::uint64_t high,
             const Note& note) {
    whole(
        key, low, high, out ? std::to_string(*out) : "",
        [&out](std::uint64_t n) { out = static_cast<N>(n); }, note);
  }
  /// One of the enumerators, written as to_string gives them.
  template <typename E>
  void choice(const char* key, E& out, std::vector<E> all, const Note& note) {
    std::vector<std::string> words;
    for (const E value : all) words.emplace_back(to_string(value));
    one_of(
        key, std::move(words), to_string(out), [&out, all](std::size_t i) { out = all[i]; }, note);
  }
  template <typename T>
  void object(const char* key, T& out, const Note& note) {
    object(key, note, [&out](Fields& inner) { describe(inner, out); });
  }
  /// Made when the key is there.
  template <typename T>
  void object(const char* key, std::optional<T>& out, const Note& note) {
    object(key, note, [&out](Fields& inner) { describe(inner, out.emplace()); });
  }
  template <typename T>
  void objects(const char* key, std::vector<T>& out, const Note& note) {
    objects(key, note, [&out](Fields& inner) { describe(inner, out.emplace_back()); });
  }

 private:
  void whole(const char* key, std::uint64_t low, std::uint64_t high, std::string fallback,
             std::function<void(std::uint64_t)> set, const Note& note);
  void one_of(const char* key, std::vector<std::string> words, std::string fallback,
              std::function<void(std::size_t)> set, const Note& note);
};

/// One kind of document.
struct SpecKind {
  const char* name;
  const char* meaning;
  TextRule name_rule;
  /// Adds an element to the set, sets its name and declares the keys of its `spec`.
  std::function<void(Fields&, SpecSet&, const SpecRef& name)> describe;
};
/// The kinds in the order of the reference.
const std::vector<SpecKind>& spec_kinds();

/// What a refused value looked like, shortened: "'16 GiB'", "a list", "nothing".
std::string seen(const YamlNode& node);
/// The most similar of `words`, or empty when none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& words);
/// "a, b or c".
std::string any_of(const std::vector<std::string>& words);
/// Errors: invalid_argument: what was seen, what is allowed.
Status check_text(const std::string& text, TextRule rule);

/// `derived` errors may only follow from another one in the same document, and are then not worth
/// saying.
enum class Certainty { certain, derived };
using CheckReport = std::function<void(const SpecPlace&, Certainty, std::string)>;
/// Adds errors that only several values together can have.
void check_set(const SpecSet& set, SpecReferences references, const CheckReport& report);

}  // namespace infos
