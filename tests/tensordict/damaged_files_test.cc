// Folders and files that are damaged in thousands of ways: each is an error, or loads where neither lengths nor
// metadata tell. None crashes.
#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tensordict/archive.h"
#include "tensordict/memmap.h"
#include "tensordict/state_dict_file.h"
#include "tensordict/structure.h"
#include "tests/testing/temporary_folder.h"

namespace graft {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::read_file;
using testing::write_file;

constexpr int kDamages = 1000;

/// Numbers from a seed.
class Random {
 public:
  explicit Random(int seed) : engine_(seed) {}

  std::size_t below(std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(engine_); }

  template <typename Values>
  const auto& pick(const Values& values) {
    return *std::next(std::begin(values), below(std::size(values)));
  }

 private:
  std::mt19937 engine_;
};

TensorDict good_tree() {
  TensorDict tree({{"x", at::arange(6).view({2, 3})},
                   {"flags", at::arange(2).to(at::kBool)},
                   {"none", at::zeros({2, 0})},
                   {"odd name/.c", at::complex(at::ones({2}), at::zeros({2}))}},
                  {2});
  tree.set("part", TensorDict({{"w", at::ones({2, 2, 2})}, {"deep.h", at::ones({2, 2}).to(at::kBFloat16)}}, {2, 2}));
  return tree;
}

/// Returns a few bytes changed: cut, flipped, put in or taken out.
std::string damaged(std::string bytes, Random& random) {
  const std::size_t position = bytes.empty() ? 0 : random.below(bytes.size());
  switch (random.below(5)) {
    case 0:
      return bytes.substr(0, position);
    case 1:
      return bytes + std::string(1 + random.below(100), static_cast<char>(random.below(256)));
    case 2:
      return bytes.insert(position, 1, static_cast<char>(random.below(256)));
    case 3:
      return bytes.empty() ? "x" : bytes.erase(position, 1 + random.below(4));
    default:
      for (std::size_t flips = 1 + random.below(3); flips > 0 && !bytes.empty(); --flips) {
        bytes[random.below(bytes.size())] ^= static_cast<char>(1 << random.below(8));
      }
      return bytes;
  }
}

/// Changes one thing in the JSON of a folder.
json edited(json metadata, Random& random) {
  const json values[] = {nullptr,
                         true,
                         -1,
                         0,
                         3,
                         1.5,
                         uint64_t{1} << 63,
                         json::array(),
                         {2},
                         {2, 3},
                         {-2},
                         {2, int64_t{1} << 62},
                         {0, int64_t{1} << 62, int64_t{1} << 62},
                         json::object(),
                         "",
                         "..",
                         "torch.int64",
                         "torch.bool",
                         "torch.none",
                         "cpu",
                         {{"type", "TensorDict"}},
                         {{"type", 3}}};
  const char* keys[] = {"", "..", ".", "/", "/etc/passwd", "../x", "a.b", "x", "part", "part.w", "meta.json", "x\n"};
  std::vector<std::string> names;
  for (const auto& [name, value] : metadata.items()) names.push_back(name);
  const std::string& name = random.pick(names);
  json& entry = metadata[name];
  switch (random.below(4)) {
    case 0:
      metadata.erase(name);
      break;
    case 1:
      metadata[random.pick(keys)] = json(entry);
      if (random.below(2) == 0) metadata.erase(name);
      break;
    case 2:
      entry = random.pick(values);
      break;
    default:
      if (!entry.is_object() || entry.empty()) {
        entry = random.pick(values);
      } else {
        const auto field = std::next(entry.begin(), random.below(entry.size()));
        if (random.below(3) == 0) {
          entry.erase(field);
        } else {
          *field = random.pick(values);
        }
      }
  }
  return metadata;
}

struct Paths {
  std::vector<fs::path> files;
  std::vector<fs::path> all;
};

Paths paths_in(const fs::path& folder) {
  Paths paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    paths.all.push_back(entry.path());
    if (entry.is_regular_file()) paths.files.push_back(entry.path());
  }
  std::sort(paths.all.begin(), paths.all.end());
  std::sort(paths.files.begin(), paths.files.end());
  return paths;
}

/// Damages a folder, and says whether lengths or metadata tell: bytes of leaves may be other ones.
bool damage(const fs::path& folder, Random& random) {
  const Paths paths = paths_in(folder);
  const fs::path& path = random.pick(paths.all);
  const fs::path& file = random.pick(paths.files);
  switch (random.below(6)) {
    case 0:
      fs::remove_all(path);
      return true;
    case 1: {
      const fs::path away = folder.parent_path() / "away";
      fs::rename(path, away);
      fs::create_symlink(away, path);
      return true;
    }
    case 2:
      fs::rename(path, path.parent_path() / "renamed");
      return true;
    case 3: {
      const std::string bytes = read_file(file);
      const std::string changed = damaged(bytes, random);
      write_file(file, changed);
      return bytes.size() != changed.size() && file.extension() == ".memmap";
    }
    default: {
      std::vector<fs::path> metadata;
      std::copy_if(paths.files.begin(), paths.files.end(), std::back_inserter(metadata),
                   [](const fs::path& candidate) { return candidate.filename() == "meta.json"; });
      const fs::path& edited_file = random.pick(metadata);
      write_file(edited_file, edited(json::parse(read_file(edited_file)), random).dump());
      return false;
    }
  }
}

/// Reads all there is, so that memory that is not there is touched.
void touch(const TensorDict& tree) {
  for (const auto& [path, value] : tree.leaves()) {
    const at::Tensor bytes = value.contiguous().view(-1);
    if (bytes.numel() > 0) at::view_as_real(bytes.to(at::kComplexDouble)).sum().item<double>();
  }
}

TEST(DamagedFilesTest, ADamagedFolderIsAnErrorOrLoads) {
  const testing::TemporaryFolder temporary;
  const fs::path folder = temporary.path() / "tree";
  const TensorDict good = good_tree();
  Random random(1);
  int refused = 0;
  for (int i = 0; i < kDamages; ++i) {
    SCOPED_TRACE(i);
    fs::remove_all(temporary.path() / "away");
    fs::remove_all(folder);
    fs::create_directories(folder);
    if (i == 0) memmap(good, (temporary.path() / "good").string());
    fs::copy(temporary.path() / "good", folder, fs::copy_options::recursive);
    ASSERT_TRUE(equal(load_memmap(folder), good));
    const bool tells = damage(folder, random);
    try {
      touch(load_memmap(folder, {.read_only = random.below(2) == 0}));
      EXPECT_FALSE(tells);
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what()).find(folder), std::string::npos) << error.what();
      ++refused;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, kDamages / 2);
  EXPECT_LT(refused, kDamages);
}

/// Damages the file, loads it, and counts what is refused.
int refused_files(const std::string& file, const std::function<TensorDict()>& load_file, const TensorDict& good) {
  const std::string bytes = read_file(file);
  Random random(2);
  int refused = 0;
  for (int i = 0; i < kDamages; ++i) {
    SCOPED_TRACE(i);
    write_file(file, damaged(bytes, random));
    try {
      const TensorDict tree = load_file();
      touch(tree);
      EXPECT_TRUE(equal(tree, good)) << "the checksums of the archive tell such damage";
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what()).find(file), std::string::npos) << error.what();
      ++refused;
    }
  }
  return refused;
}

TEST(DamagedFilesTest, ADamagedArchiveIsAnErrorOrLoadsEqual) {
  const testing::TemporaryFolder temporary;
  const std::string file = temporary.path() / "tree.pt";
  const TensorDict good = good_tree();
  save(good, file);
  EXPECT_GT(refused_files(
                file, [&] { return load(file); }, good),
            kDamages / 3);
}

TEST(DamagedFilesTest, ADamagedStateDictIsAnErrorOrLoadsEqual) {
  const testing::TemporaryFolder temporary;
  const std::string file = temporary.path() / "net.pt";
  const TensorDict good({{"a.w", at::rand({4, 5})}, {"a.b", at::rand({5})}, {"n", at::arange(3)}});
  save_state_dict(good, file);
  EXPECT_GT(refused_files(
                file, [&] { return load_state_dict(file); }, good),
            kDamages / 3);
}

}  // namespace
}  // namespace graft
