#include "tensordict/archive.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::ThrowsWith;

/// Gives each test an empty folder.
class ArchiveTest : public ::testing::Test {
 protected:
  ArchiveTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) / (std::string("archive_") + test->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~ArchiveTest() override { std::filesystem::remove_all(folder_); }

  std::string file() const { return folder_ / "tree.pt"; }
  std::size_t files() const { return std::distance(std::filesystem::directory_iterator(folder_), {}); }

 private:
  std::filesystem::path folder_;
};

TensorDict example() {
  return TensorDict({{"a.b", at::rand({2, 3}, at::kDouble)}, {"n", at::arange(2)}, {"none", at::zeros({2, 0})}}, {2});
}

TEST_F(ArchiveTest, LoadReturnsWhatWasSaved) {
  const TensorDict td = example();
  td["a.b"].requires_grad_();
  save(td, file());
  const TensorDict back = load(file());
  EXPECT_THAT(back, TensorDictEq(td));
  EXPECT_TRUE(back["a.b"].requires_grad());
  EXPECT_FALSE(back["none"].requires_grad());
  EXPECT_EQ(files(), 1u);
}

TEST_F(ArchiveTest, AnEmptyTreeCanBeSaved) {
  save(TensorDict(std::vector<int64_t>{3}), file());
  EXPECT_EQ(load(file()).batch_size(), std::vector<int64_t>{3});
}

TEST_F(ArchiveTest, OnlyTheShownPartOfAViewIsWritten) {
  save(TensorDict({{"x", at::zeros({100000}).slice(0, 0, 2)}}), file());
  EXPECT_LT(std::filesystem::file_size(file()), 20000u);
  EXPECT_THAT(load(file()), TensorDictEq(TensorDict({{"x", at::zeros({2})}})));
}

TEST_F(ArchiveTest, ASecondSaveReplacesTheFile) {
  save(example(), file());
  save(TensorDict({{"x", at::ones({1})}}), file());
  EXPECT_EQ(load(file()).size(), 1u);
  EXPECT_EQ(files(), 1u);
}

TEST_F(ArchiveTest, AFailedSaveKeepsTheOldFile) {
  save(example(), file());
  EXPECT_THAT([&] { save(TensorDict({{"s", at::eye(2).to_sparse()}}), file()); }, ThrowsWith<c10::ValueError>("\"s\""));
  EXPECT_EQ(load(file()).size(), 3u);
  EXPECT_THAT([&] { save(example(), file() + "/x.pt"); }, ThrowsWith<c10::Error>("x.pt"));
}

TEST_F(ArchiveTest, MissingCutAndForeignFilesAreErrorsThatNameTheFile) {
  EXPECT_THAT([&] { load(file()); }, ThrowsWith<c10::Error>("tree.pt", "No such file"));
  save(example(), file());
  std::filesystem::resize_file(file(), std::filesystem::file_size(file()) / 2);
  EXPECT_THAT([&] { load(file()); }, ThrowsWith<c10::Error>("tree.pt"));
  for (const char* text : {"", "no archive"}) {
    std::ofstream(file()) << text;
    EXPECT_THAT([&] { load(file()); }, ThrowsWith<c10::Error>("tree.pt"));
  }
}

}  // namespace
}  // namespace graft
