// Folders that Python's tensordict wrote, loaded and written again.
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tensordict/internal/memmap_metadata.h"
#include "tensordict/memmap.h"
#include "tests/testing/temporary_folder.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using nlohmann::json;
using testing::TemporaryFolder;
using testing::TensorDictEq;
using testing::ThrowsWith;

json folders() { return json::parse(testing::read_file("tests/tensordict/memmap_folders.json")); }

/// The content of a file, which is kept as text if it is meta.json, and in hexadecimal otherwise.
std::string content_of(const std::string& file, const std::string& kept) {
  if (std::filesystem::path(file).filename() == internal::kMetadataFile) return kept;
  std::string bytes;
  for (std::size_t i = 0; i < kept.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(kept.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

void write_files(const json& files, const std::filesystem::path& folder) {
  for (const auto& [name, kept] : files.items()) {
    std::filesystem::create_directories((folder / name).parent_path());
    testing::write_file(folder / name, content_of(name, kept));
  }
}

at::ScalarType dtype_of(const std::string& name) { return c10::getStringToDtypeMap().at(name.substr(6)); }

at::Tensor tensor_from(const json& leaf) {
  const at::ScalarType dtype = dtype_of(leaf["dtype"]);
  const auto values = leaf["values"].get<std::vector<double>>();
  const auto shape = leaf["shape"].get<std::vector<int64_t>>();
  const at::Tensor numbers = at::tensor(values, at::kDouble);
  if (!at::isComplexType(dtype)) return numbers.to(dtype).reshape(shape);
  return at::view_as_complex(numbers.reshape({-1, 2})).to(dtype).reshape(shape);
}

TensorDict tree_from(const json& folder) {
  TensorDict tree(folder["batch_size"].get<std::vector<int64_t>>());
  for (const json& leaf : folder["leaves"]) tree.set(leaf["path"].get<std::string>(), tensor_from(leaf));
  return tree;
}

void expect_equal(const TensorDict& got, const json& folder) {
  // Some dtypes have no subtraction: compared as double or complex double, after the dtypes.
  const TensorDict expected = tree_from(folder);
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_EQ(got.batch_size(), expected.batch_size());
  for (const auto& [path, value] : expected.leaves()) {
    ASSERT_TRUE(got.find(path)) << path;
    EXPECT_EQ(got[path].scalar_type(), value.scalar_type()) << path;
    const auto wide = at::isComplexType(value.scalar_type()) ? at::kComplexDouble : at::kDouble;
    EXPECT_TRUE(at::equal(got[path].to(wide), value.to(wide))) << path << got[path] << value;
  }
  for (const auto& [part, batch_size] : folder["parts"].items()) {
    EXPECT_EQ(got.batch_size(part), batch_size.get<std::vector<int64_t>>()) << part;
  }
}

TEST(MemmapPythonTest, FoldersOfPythonLoadAsTheyDoThere) {
  int loaded = 0;
  const json all = folders();
  for (const auto& [name, folder] : all.items()) {
    if (folder.contains("error")) continue;
    SCOPED_TRACE(name);
    const TemporaryFolder temporary;
    write_files(folder["files"], temporary.path());
    expect_equal(load_memmap(temporary.path()), folder);
    expect_equal(load_memmap(temporary.path(), {.read_only = true}), folder);
    ++loaded;
  }
  EXPECT_EQ(loaded, 13);
}

TEST(MemmapPythonTest, WhatGraftWritesIsWhatPythonWrites) {
  const json all = folders();
  for (const auto& [name, folder] : all.items()) {
    // Parts without leaves, dotted names, names of dims, and parameters are kept in another way.
    if (folder.contains("error") || name == "empty parts" || name == "dots" || name == "names of dims") continue;
    SCOPED_TRACE(name);
    const TemporaryFolder temporary;
    write_files(folder["files"], temporary.path() / "python");
    memmap(load_memmap(temporary.path() / "python"), temporary.path() / "graft");
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(temporary.path() / "graft")) {
      if (entry.is_directory()) continue;
      const std::string file = entry.path().lexically_relative(temporary.path() / "graft");
      ASSERT_TRUE(folder["files"].contains(file)) << file;
      const std::string bytes = content_of(file, folder["files"][file]);
      if (entry.path().filename() == internal::kMetadataFile) {
        json python = json::parse(bytes);
        // Python says "TensorDictParams" of such a part in the folder around it, not in its own.
        if (name == "parameters" && python.contains("p")) python["p"]["type"] = "TensorDict";
        EXPECT_EQ(json::parse(testing::read_file(entry)), python) << file;
      } else {
        EXPECT_EQ(testing::read_file(entry), bytes) << file;
      }
      ++files;
    }
    EXPECT_EQ(files, folder["files"].size());
  }
}

TEST(MemmapPythonTest, WhatIsNoTreeOfTensorsIsAnErrorThatNamesTheFile) {
  int refused = 0;
  const json all = folders();
  for (const auto& [name, folder] : all.items()) {
    if (!folder.contains("error")) continue;
    SCOPED_TRACE(name);
    const TemporaryFolder temporary;
    write_files(folder["files"], temporary.path());
    const std::string path = temporary.path();
    EXPECT_THAT([&] { load_memmap(path); },
                ThrowsWith<c10::Error>(path, "meta.json", folder["error"].get<std::string>()));
    ++refused;
  }
  EXPECT_EQ(refused, 9);
}

}  // namespace
}  // namespace graft
