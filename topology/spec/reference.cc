// SPDX-License-Identifier: Apache-2.0
// docs/spec-reference.md, written from the declarations of the keys.
#include <fmt/format.h>

#include "topology/spec/fields.h"

namespace infos {
namespace {

constexpr const char* kHead = R"(# Reference of the spec

This page is generated from the declarations of the keys (`infos spec-reference`); a test fails when it is stale.

A file holds one or more YAML documents, separated by `---`. Each has `apiVersion: infos/v1`, a `kind`,
`metadata: {{name: ...}}` and a `spec`. Unknown keys, keys given twice, wrong units, anchors, aliases, tags and tabs are errors;
all errors are reported at once as `file:line:column: what was seen, what is allowed`, and nothing changes on any error.

| type | written as |
|---|---|
| size | `16GiB`: a number and one of B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (of 1024) |
| duration | `300ms`: a number and one of ns, us, ms, s, m, h |
| bandwidth | `400Gb/s`: a number and one of b/s, kb/s, Mb/s, Gb/s, Tb/s (bits), B/s, kB/s, MB/s, GB/s, TB/s (bytes) |
| core list | `0-3,8`: numbers and ranges of logical cores |
| name | 1 to 128 letters, digits, `-`, `_`, `.`; the first a letter or digit |
| model name | as a name, and also `/`, `:`, `@`, `+` |

Bounds of one file: {} bytes, {} values, {} levels, {} documents. A key marked *not acted on yet* is accepted and
checked, and no code acts on it so far.
)";

/// Writes one table row per key, nested keys with dots, lists with [].
class FieldLister final : public Fields {
 public:
  FieldLister(std::string prefix, std::string& out) : prefix_(std::move(prefix)), out_(out) {}

  void scalar(const char* key, const Note& note, const Scalar& scalar) override {
    row(key, "", scalar.type, scalar.fallback, note);
  }
  void scalars(const char* key, const Note& note, const Scalar& scalar) override {
    row(key, "", "list of " + scalar.type, "", note);
  }
  void object(const char* key, const Note& note, const Body& body) override {
    row(key, "", "map", "", note);
    FieldLister inner(prefix_ + key + ".", out_);
    body(inner);
  }
  void objects(const char* key, const Note& note, const Body& body) override {
    row(key, "[]", "list of maps", "", note);
    FieldLister inner(prefix_ + key + "[].", out_);
    body(inner);
  }
  SpecPlace place() const override { return {}; }

 private:
  void row(const char* key, const char* suffix, const std::string& type,
           const std::string& fallback, const Note& note) {
    const std::string rest = note.presence == Presence::required ? "required"
                             : fallback.empty()                  ? ""
                                                                 : "`" + fallback + "`";
    out_ += fmt::format("| `{}{}{}` | {} | {} | {}{} |\n", prefix_, key, suffix, type, rest,
                        note.meaning, note.acted == Acted::not_yet ? "; *not acted on yet*" : "");
  }

  std::string prefix_;
  std::string& out_;
};

}  // namespace

std::string spec_reference() {
  std::string out = fmt::format(fmt::runtime(kHead), kSpecBytesMax, kSpecNodesMax, kSpecDepthMax,
                                kSpecDocumentsMax);
  for (const SpecKind& kind : spec_kinds()) {
    out += fmt::format(
        "\n## {}\n\n{}\n\n| key of `spec` | type | default | meaning |\n|---|---|---|---|\n",
        kind.name, kind.meaning);
    FieldLister lister("", out);
    SpecSet set;
    kind.describe(lister, set, {});
  }
  return out;
}

}  // namespace infos
