// A process that saves is killed at any moment: what is loaded then is one whole tree, old or new.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "tensordict/memmap.h"
#include "tests/testing/temporary_folder.h"

namespace graft {
namespace {

constexpr int kKills = 200;
constexpr int kParts = 5;

/// Returns a tree of which every number is `version`. Odd versions have other leaves than even ones.
TensorDict version_tree(int version) {
  TensorDict tree;
  for (int i = 0; i < kParts + version % 2; ++i) {
    const std::string part = "part" + std::to_string(i);
    tree.set(part + ".w", at::full({64, 4 + version % 2}, version, at::kInt));
    tree.set(part + (version % 2 ? ".odd" : ".even"), at::full({16}, version, at::kInt));
  }
  return tree;
}

/// Checks that the tree is whole, and returns its version.
int version_of(const TensorDict& tree) {
  const int version = tree["part0.w"][0][0].item<int>();
  const TensorDict expected = version_tree(version);
  EXPECT_EQ(tree.size(), expected.size());
  for (const auto& [path, value] : expected.leaves()) EXPECT_TRUE(at::equal(value, tree[path])) << path;
  return version;
}

/// Saves higher versions until it is killed.
[[noreturn]] void save_versions(const std::string& folder, int version) {
  while (true) memmap(version_tree(++version), folder);
}

TEST(MemmapKillTest, TheFolderIsOldOrNewWhenASavingProcessIsKilled) {
  at::set_num_threads(1);  // the child of a fork has no other threads
  const testing::TemporaryFolder temporary;
  const std::string folder = temporary.path() / "tree";
  memmap(version_tree(0), folder);
  std::mt19937 random(5);
  int version = 0;
  int interrupted = 0;
  for (int i = 0; i < kKills; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_versions(folder, version);
    ::usleep(random() % 30000);
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    const int now = version_of(load_memmap(folder));
    EXPECT_GE(now, version);
    version = now;
    for (const std::string& name : testing::names_in(temporary.path())) {
      if (name == "tree") continue;
      ++interrupted;
      std::filesystem::remove_all(temporary.path() / name);
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(version, 0);       // some were saved whole
  EXPECT_GT(interrupted, 10);  // and some were cut short
}

}  // namespace
}  // namespace graft
