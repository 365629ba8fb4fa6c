// SPDX-License-Identifier: Apache-2.0
// Goal: backends are found where the design says, and what cannot be trusted is refused with the
// place and the reason. Method: a sample shared object, files that are none, and query functions
// that give tables with one fault each.
#include "devices/host/plugin.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "devices/engine/reference/backend.h"
#include "devices/host/device.h"

namespace infos {
namespace {

/// A folder that goes when the test ends, and INFOS_PLUGIN_DIR pointing to it.
class PluginSearch : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "infos-plugin-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    setenv("INFOS_PLUGIN_DIR", name.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("INFOS_PLUGIN_DIR");
    std::filesystem::remove_all(folder_);
  }
  std::filesystem::path folder_;
};

TEST_F(PluginSearch, NameInPluginDir_IsFoundOnceAndTheSameAgain) {
  std::filesystem::copy_file(INFOS_SAMPLE_PLUGIN, folder_ / "libinfos_sample.so");
  const auto first = find_plugin("sample");
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ((*first)->name(), "sample");
  EXPECT_EQ((*first)->path(), std::filesystem::canonical(folder_ / "libinfos_sample.so").string());
  EXPECT_EQ(*find_plugin((folder_ / "libinfos_sample.so").string()), *first);
}

TEST_F(PluginSearch, ExplicitPath_IsTakenBeforeAnyFolder) {
  const auto plugin = find_plugin(INFOS_SAMPLE_PLUGIN);
  ASSERT_TRUE(plugin.ok()) << plugin.error().message;
  EXPECT_EQ((*plugin)->path(), std::filesystem::canonical(INFOS_SAMPLE_PLUGIN).string());
}

TEST_F(PluginSearch, NameThatIsNowhere_NamesThePlacesInOrder) {
  const auto paths = plugin_search_paths("nowhere");
  ASSERT_EQ(paths.size(), 2U);
  EXPECT_EQ(paths[0], (folder_ / "libinfos_nowhere.so").string());
  EXPECT_TRUE(paths[1].ends_with("/lib/infos/libinfos_nowhere.so"));
  const auto plugin = find_plugin("nowhere");
  ASSERT_FALSE(plugin.ok());
  EXPECT_EQ(plugin.error().code, ErrorCode::not_found);
  EXPECT_NE(plugin.error().message.find(paths[0] + ", " + paths[1]), std::string::npos)
      << plugin.error().message;
}

TEST_F(PluginSearch, FileThatIsNoPlugin_IsRefusedWithItsPath) {
  std::ofstream(folder_ / "libinfos_text.so") << "not a library";
  const auto text = find_plugin("text");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, ErrorCode::corrupt);
  EXPECT_NE(text.error().message.find("libinfos_text.so"), std::string::npos)
      << text.error().message;
  const auto other = find_plugin(INFOS_NO_QUERY_PLUGIN);
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("infos_plugin_query"), std::string::npos)
      << other.error().message;
}

template <typename Change>
infos_code changed(infos_plugin_api* out, const Change& change) {
  infos_host_api host{sizeof(infos_host_api), INFOS_ABI_VERSION, nullptr, nullptr};
  const infos_code code = reference::plugin_query(INFOS_ABI_VERSION, &host, out, nullptr);
  change(*out);
  return code;
}

struct Fault {
  const char* name;
  PluginQuery query;
  ErrorCode code;
  const char* message;
};
const Fault kFaults[] = {
    {"refuses",
     [](std::uint32_t, const infos_host_api*, infos_plugin_api*, infos_error* e) {
       std::strcpy(e->message, "no driver here");
       return INFOS_UNSUPPORTED;
     },
     ErrorCode::unsupported, "no driver here"},
    {"too_old",
     [](std::uint32_t, const infos_host_api*, infos_plugin_api* out, infos_error*) {
       return changed(out, [](infos_plugin_api& api) { api.abi_version = 0; });
     },
     ErrorCode::unsupported, "device ABI 0"},
    {"too_new",
     [](std::uint32_t, const infos_host_api*, infos_plugin_api* out, infos_error*) {
       return changed(out, [](infos_plugin_api& api) { api.abi_version = INFOS_ABI_VERSION + 2; });
     },
     ErrorCode::unsupported, "this host works with"},
    {"needs_more",
     [](std::uint32_t, const infos_host_api*, infos_plugin_api* out, infos_error*) {
       return changed(out, [](infos_plugin_api& api) { api.required_features = 0x10; });
     },
     ErrorCode::unsupported, "0x10"},
    {"has_a_hole",
     [](std::uint32_t, const infos_host_api*, infos_plugin_api* out, infos_error*) {
       return changed(out, [](infos_plugin_api& api) { api.kv_layout = nullptr; });
     },
     ErrorCode::corrupt, "'kv_layout'"},
    {"is_short",
     [](std::uint32_t, const infos_host_api*, infos_plugin_api* out, infos_error*) {
       return changed(out, [](infos_plugin_api& api) {
         api.struct_size = offsetof(infos_plugin_api, execute);
       });
     },
     ErrorCode::corrupt, "'execute'"},
    {"has_no_name",
     [](std::uint32_t, const infos_host_api*, infos_plugin_api* out, infos_error*) {
       return changed(out, [](infos_plugin_api& api) { api.name = nullptr; });
     },
     ErrorCode::corrupt, "no name"},
};

TEST(Plugin, FaultyTable_IsRefusedWithTheReason) {
  for (const Fault& fault : kFaults) {
    const auto plugin = open_query(fault.query, fault.name);
    ASSERT_FALSE(plugin.ok()) << fault.name;
    EXPECT_EQ(plugin.error().code, fault.code) << fault.name;
    EXPECT_NE(plugin.error().message.find(fault.message), std::string::npos)
        << plugin.error().message;
    EXPECT_NE(plugin.error().message.find(fault.name), std::string::npos) << plugin.error().message;
  }
}

TEST(Plugin, TableOfANewerHostAndAnOlderPlugin_LastFieldsReadAsZero) {
  const auto plugin = open_query(
      [](std::uint32_t, const infos_host_api*, infos_plugin_api* out, infos_error*) {
        return changed(out, [](infos_plugin_api& api) {
          api.keeps_weights = 1;
          api.struct_size = offsetof(infos_plugin_api, keeps_weights);
        });
      },
      "older");
  ASSERT_TRUE(plugin.ok()) << plugin.error().message;
  EXPECT_EQ((*plugin)->api().keeps_weights, 0U);
}

TEST(Device, UnknownOption_IsRefusedWithTheAllowedOnes) {
  register_plugin("reference", &reference::plugin_query);
  DeviceConfig config;
  config.options = "precision=f16";
  const auto device = Device::open(**find_plugin("reference"), config);
  ASSERT_FALSE(device.ok());
  EXPECT_NE(device.error().message.find("precision=f64 or precision=f32"), std::string::npos)
      << device.error().message;
}

}  // namespace
}  // namespace infos
