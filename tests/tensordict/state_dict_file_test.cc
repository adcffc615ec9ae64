#include "tensordict/state_dict_file.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/testing/temporary_folder.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using nlohmann::json;
using testing::TensorDictEq;
using testing::ThrowsWith;

class StateDictFileTest : public ::testing::Test {
 protected:
  std::string file() const { return folder_.path() / "net.pt"; }
  std::vector<std::string> names() const { return testing::names_in(folder_.path()); }

 private:
  testing::TemporaryFolder folder_;
};

const std::vector<at::ScalarType> kDtypes = {at::kDouble, at::kFloat,  at::kHalf,         at::kBFloat16,
                                             at::kLong,   at::kInt,    at::kShort,        at::kChar,
                                             at::kByte,   at::kBool,   at::kComplexFloat, at::kComplexDouble,
                                             at::kUInt16, at::kUInt32, at::kUInt64,       at::kComplexHalf};

TensorDict example() {
  return TensorDict(
      {{"fc1.weight", at::rand({3, 2})}, {"fc1.bias", at::rand({3})}, {"n", at::scalar_tensor(7, at::kLong)}});
}

TEST_F(StateDictFileTest, LoadReturnsWhatWasSaved) {
  TensorDict td = example();
  td["fc1.bias"].requires_grad_();
  td.set("none", at::empty({2, 0, 3}));
  save_state_dict(td, file());
  const TensorDict back = load_state_dict(file());
  EXPECT_THAT(back, TensorDictEq(td));
  EXPECT_TRUE(back["fc1.bias"].requires_grad());
  EXPECT_FALSE(back["fc1.weight"].requires_grad());
  EXPECT_EQ(names(), (std::vector<std::string>{"net.pt"}));
}

TEST_F(StateDictFileTest, EveryDtypeIsKept) {
  TensorDict td;
  for (const at::ScalarType dtype : kDtypes) td.set(c10::toString(dtype), at::arange(5).sub(2).to(dtype));
  save_state_dict(td, file());
  const TensorDict back = load_state_dict(file());
  for (const auto& [path, value] : td.leaves()) {
    ASSERT_EQ(back[path].scalar_type(), value.scalar_type());
    EXPECT_EQ(std::memcmp(back[path].const_data_ptr(), value.const_data_ptr(), value.nbytes()), 0) << path;
  }
}

TEST_F(StateDictFileTest, LibTorchReadsADict) {
  const TensorDict td = example();
  save_state_dict(td, file());
  const std::string bytes = testing::read_file(file());
  const at::IValue value = torch::jit::pickle_load(std::vector<char>(bytes.begin(), bytes.end()));
  ASSERT_TRUE(value.isGenericDict());
  TensorDict back;
  for (const auto& entry : value.toGenericDict()) back.set(entry.key().toStringRef(), entry.value().toTensor());
  EXPECT_THAT(back, TensorDictEq(td));
}

TEST_F(StateDictFileTest, LibTorchsOwnDictsAreRead) {
  const TensorDict td = example();
  c10::Dict<std::string, at::Tensor> dict;
  for (const auto& [path, value] : td.leaves()) dict.insert(path, value);
  const std::vector<char> bytes = torch::jit::pickle_save(dict);
  testing::write_file(file(), std::string(bytes.begin(), bytes.end()));
  EXPECT_THAT(load_state_dict(file()), TensorDictEq(td));
}

TEST_F(StateDictFileTest, TiesAndSharedStoragesStay) {
  const at::Tensor w = at::arange(6.0);
  const TensorDict td(
      {{"a", w}, {"b", w}, {"rows", w.view({2, 3})}, {"tail", w.slice(0, 4)}, {"alone", at::zeros({1})}});
  save_state_dict(td, file());
  const TensorDict back = load_state_dict(file());
  EXPECT_THAT(back, TensorDictEq(td));
  back["a"].fill_(5);
  for (const char* path : {"b", "rows", "tail"}) EXPECT_TRUE(back[path].eq(5).all().item<bool>()) << path;
  EXPECT_TRUE(back["a"].is_same(back["b"]));
  EXPECT_FALSE(back["a"].is_same(back["rows"]));
  EXPECT_TRUE(back["alone"].eq(0).all().item<bool>());
}

TEST_F(StateDictFileTest, OnlyTheShownPartOfAViewIsWritten) {
  const TensorDict td({{"x", at::arange(100000).slice(0, 5, 9)}, {"t", at::rand({2, 3}).t()}});
  save_state_dict(td, file());
  EXPECT_LT(std::filesystem::file_size(file()), 20000u);
  EXPECT_THAT(load_state_dict(file()), TensorDictEq(td));
}

TEST_F(StateDictFileTest, LeavesThatCannotBeWrittenAreListedAndTheOldFileStays) {
  save_state_dict(example(), file());
  const TensorDict td({{"s", at::eye(2).to_sparse()},
                       {"m", at::empty({1}, at::kMeta)},
                       {"f", at::ones({1}).to(at::kFloat8_e5m2)},
                       {"x", at::ones({1})}});
  EXPECT_THAT([&] { save_state_dict(td, file()); },
              ThrowsWith<c10::ValueError>("save_state_dict", "\"s\"", "\"m\"", "\"f\": dtype Float8_e5m2"));
  EXPECT_EQ(load_state_dict(file()).size(), 3u);
  EXPECT_THAT([&] { save_state_dict(example(), file() + "/x.pt"); }, ThrowsWith<c10::Error>("net.pt/x.pt"));
  EXPECT_EQ(names(), (std::vector<std::string>{"net.pt"}));
}

TEST_F(StateDictFileTest, MissingAndForeignFilesAreErrorsThatNameTheFile) {
  EXPECT_THAT([&] { load_state_dict(file()); }, ThrowsWith<c10::Error>("load_state_dict", "net.pt", "No such file"));
  for (const char* text : {"", "no archive", "PK\x03\x04"}) {
    testing::write_file(file(), text);
    EXPECT_THAT([&] { load_state_dict(file()); }, ThrowsWith<c10::Error>("net.pt"));
  }
}

// Files that Python's torch wrote; see make_state_dict_files.py.

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

TEST_F(StateDictFileTest, FilesOfPythonAreReadOrRefusedByKey) {
  const json all = json::parse(testing::read_file("tests/tensordict/state_dict_files.json"));
  EXPECT_GE(all.size(), 10u);
  for (const auto& [name, stored] : all.items()) {
    SCOPED_TRACE(name);
    testing::write_file(file(), from_hex(stored["bytes"]));
    if (stored.contains("error")) {
      EXPECT_THAT([&] { load_state_dict(file()); },
                  ThrowsWith<c10::Error>("net.pt", stored["error"].get<std::string>()));
      continue;
    }
    const TensorDict tree = load_state_dict(file());
    ASSERT_EQ(tree.size(), stored["leaves"].size());
    for (const json& leaf : stored["leaves"]) {
      const at::Tensor value = tree[leaf["path"].get<std::string>()];
      EXPECT_EQ(value.scalar_type(), c10::getStringToDtypeMap().at(leaf["dtype"].get<std::string>().substr(6)));
      EXPECT_EQ(value.sizes().vec(), leaf["shape"].get<std::vector<int64_t>>());
      EXPECT_EQ(value.requires_grad(), leaf["requires_grad"].get<bool>());
      const at::Tensor numbers = at::tensor(leaf["values"].get<std::vector<double>>(), at::kDouble);
      const at::Tensor real =
          value.is_complex() ? at::view_as_real(value.to(at::kComplexDouble)) : value.to(at::kDouble);
      EXPECT_TRUE(at::equal(real.flatten(), numbers)) << real << numbers;
    }
    for (const json& tie : stored["ties"]) {
      EXPECT_TRUE(tree[tie[0].get<std::string>()].is_alias_of(tree[tie[1].get<std::string>()])) << tie;
    }
  }
}

}  // namespace
}  // namespace graft
