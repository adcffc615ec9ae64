#include "tensordict/archive.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <filesystem>
#include <fstream>

#include "tests/testing/temporary_folder.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::ThrowsWith;

class ArchiveTest : public ::testing::Test {
 protected:
  std::string file() const { return folder_.path() / "tree.pt"; }
  std::size_t files() const { return testing::names_in(folder_.path()).size(); }

 private:
  testing::TemporaryFolder folder_;
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

TEST_F(ArchiveTest, PartsKeepTheirBatchSizes) {
  TensorDict td = example();
  td.set("part", TensorDict({{"w", at::rand({2, 3})}, {"deep.w", at::rand({2, 3, 4})}}, {2, 3}));
  td.set("part.deep", TensorDict({{"w", at::rand({2, 3, 4})}}, {2, 3, 4}));
  save(td, file());
  const TensorDict back = load(file());
  EXPECT_THAT(back, TensorDictEq(td));
  EXPECT_EQ(back.batch_size("part"), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(back.batch_size("part.deep"), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(back.batch_size("a"), std::vector<int64_t>{2});
}

TEST_F(ArchiveTest, FilesWithoutBatchSizesOfPartsAreReadToo) {
  using c10::ivalue::Tuple;
  const at::Tensor x = at::rand({2, 3}).requires_grad_();
  const at::IValue leaves = Tuple::create(at::IValue(Tuple::create("a.x", x)), at::IValue(Tuple::create("y", x)));
  const at::IValue batch_size = Tuple::create(int64_t{2});
  const std::vector<char> bytes =
      torch::jit::pickle_save(Tuple::create("graft.TensorDict", int64_t{1}, batch_size, leaves));
  testing::write_file(file(), std::string(bytes.begin(), bytes.end()));
  const TensorDict back = load(file());
  EXPECT_THAT(back, TensorDictEq(TensorDict({{"a.x", x}, {"y", x}}, {2})));
  EXPECT_TRUE(back["y"].requires_grad());
}

TEST_F(ArchiveTest, TiesStay) {
  const at::Tensor w = at::zeros({3});
  save(TensorDict({{"a", w}, {"b", w}}), file());
  const TensorDict back = load(file());
  back["a"].fill_(1);
  EXPECT_TRUE(at::equal(back["b"], at::ones({3})));
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
