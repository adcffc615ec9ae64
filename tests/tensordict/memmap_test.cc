#include "tensordict/memmap.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/testing/temporary_folder.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

namespace fs = std::filesystem;
using testing::names_in;
using testing::read_file;
using testing::TemporaryFolder;
using testing::TensorDictEq;
using testing::ThrowsWith;
using testing::write_file;

class MemmapTest : public ::testing::Test {
 protected:
  std::string folder() const { return temporary_.path() / "tree"; }
  fs::path in(const char* file) const { return fs::path(folder()) / file; }
  const fs::path& around() const { return temporary_.path(); }

  /// Replaces a text in the file, which must be there.
  void edit(const char* file, const std::string& old_text, const std::string& new_text) const {
    std::string text = read_file(in(file));
    const std::size_t position = text.find(old_text);
    ASSERT_NE(position, std::string::npos) << text;
    write_file(in(file), text.replace(position, old_text.size(), new_text));
  }

 private:
  TemporaryFolder temporary_;
};

TensorDict example() {
  TensorDict part({{"w", at::rand({2, 3, 4})}, {"deep.n", at::arange(6).view({2, 3})}}, {2, 3});
  TensorDict tree({{"x", at::rand({2, 3}, at::kDouble)}}, {2});
  tree.set("part", part);
  tree.set("flags", at::arange(2).to(at::kBool));
  return tree;
}

TEST_F(MemmapTest, Example) {
  const TensorDict td = example();
  TensorDict mapped = memmap(td, folder());
  mapped["x"].fill_(7);
  EXPECT_TRUE(load_memmap(folder())["x"].eq(7).all().item<bool>());
  EXPECT_TRUE(memmap_like(td, (around() / "zeros").string())["x"].eq(0).all().item<bool>());
}

TEST_F(MemmapTest, BothReturnTheTreeAndItsBatchSizes) {
  const TensorDict td = example();
  const TensorDict mapped = memmap(td, folder());
  const TensorDict loaded = load_memmap(folder());
  for (const TensorDict* tree : {&mapped, &loaded}) {
    EXPECT_THAT(*tree, TensorDictEq(td));
    EXPECT_EQ(tree->batch_size("part"), (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(tree->batch_size("part.deep"), (std::vector<int64_t>{2, 3}));
  }
  EXPECT_TRUE(mapped.is_locked());
  EXPECT_FALSE(loaded.is_locked());
  EXPECT_EQ(names_in(folder()), (std::vector<std::string>{"flags.memmap", "meta.json", "part", "x.memmap"}));
  EXPECT_EQ(names_in(around()), (std::vector<std::string>{"tree"}));
}

TEST_F(MemmapTest, LeavesOfOnePartComeTogether) {
  memmap(TensorDict({{"a.x", at::ones(1)}, {"b", at::ones(1)}, {"a.y", at::ones(1)}}), folder());
  std::vector<std::string> paths;
  for (const auto& [path, value] : load_memmap(folder()).leaves()) paths.push_back(path);
  EXPECT_EQ(paths, (std::vector<std::string>{"a.x", "a.y", "b"}));
}

TEST_F(MemmapTest, WhatIsWrittenIntoALeafIsInTheFileUnlessItIsReadOnly) {
  memmap(TensorDict({{"x", at::zeros({3})}}), folder());
  const TensorDict shared = load_memmap(folder());
  const TensorDict other = load_memmap(folder());
  const TensorDict own = load_memmap(folder(), {.read_only = true});
  own["x"].fill_(5);
  EXPECT_TRUE(at::equal(shared["x"], at::zeros({3})));
  shared["x"].fill_(6);
  EXPECT_TRUE(at::equal(other["x"], at::full({3}, 6)));
  EXPECT_TRUE(at::equal(own["x"], at::full({3}, 5)));
  EXPECT_TRUE(at::equal(load_memmap(folder())["x"], at::full({3}, 6)));
}

TEST_F(MemmapTest, ReadOnlyLoadsFilesThatCannotBeWritten) {
  memmap(TensorDict({{"x", at::zeros({3})}}), folder());
  fs::permissions(in("x.memmap"), fs::perms::owner_read);
  EXPECT_EQ(load_memmap(folder(), {.read_only = true}).size(), 1u);
}

TEST_F(MemmapTest, EveryKindOfLeafIsWritten) {
  const TensorDict td({{"transposed", at::rand({2, 3}).t()},
                       {"every_second", at::arange(6).slice(0, 0, 6, 2)},
                       {"expanded", at::ones({1}).expand({3, 4})},
                       {"conjugate", at::complex(at::rand({3}), at::rand({3})).conj()},
                       {"negative", at::imag(at::complex(at::rand({3}), at::rand({3})).conj())},
                       {"none", at::empty({3, 0, 2}, at::kLong)},
                       {"half", at::rand({3}).to(at::kBFloat16)}},
                      {3});
  EXPECT_THAT(memmap(td, folder()), TensorDictEq(td));
  EXPECT_THAT(load_memmap(folder()), TensorDictEq(td));
  EXPECT_FALSE(fs::exists(in("none.memmap")));
}

TEST_F(MemmapTest, ScalarsAndTreesWithoutLeavesAreKept) {
  const TensorDict scalars({{"a", at::scalar_tensor(3.5)}, {"b.c", at::scalar_tensor(2, at::kLong)}});
  memmap(scalars, folder());
  EXPECT_THAT(load_memmap(folder()), TensorDictEq(scalars));
  memmap(TensorDict(std::vector<int64_t>{4}), folder());
  EXPECT_TRUE(load_memmap(folder()).empty());
  EXPECT_EQ(load_memmap(folder()).batch_size(), std::vector<int64_t>{4});
}

TEST_F(MemmapTest, LeavesLoseTheirGradientsAndTies) {
  const at::Tensor w = at::ones({2}).requires_grad_();
  const TensorDict mapped = memmap(TensorDict({{"a", w}, {"b", w}, {"c", at::mul(w, 2)}}), folder());
  for (const auto& [path, value] : mapped.leaves()) EXPECT_FALSE(value.requires_grad()) << path;
  mapped["a"].fill_(3);
  EXPECT_TRUE(at::equal(mapped["b"], at::ones({2})));
}

TEST_F(MemmapTest, LikePreallocatesZeros) {
  const TensorDict td = example();
  const TensorDict zeros = memmap_like(td, folder());
  EXPECT_TRUE(zeros.is_locked());
  EXPECT_EQ(zeros.batch_size("part"), (std::vector<int64_t>{2, 3}));
  EXPECT_THAT(load_memmap(folder()), TensorDictEq(td.map([](const at::Tensor& t) { return at::zeros_like(t); })));
  EXPECT_EQ(fs::file_size(in("x.memmap")), 48u);
}

TEST_F(MemmapTest, ASecondSaveLeavesNothingOfTheFirst) {
  memmap(example(), folder());
  fs::permissions(folder(), fs::perms::owner_all);
  const TensorDict old = load_memmap(folder());
  const TensorDict td({{"x", at::zeros({2, 2})}, {"flags.a", at::ones({2})}}, {2});
  memmap(td, folder());
  EXPECT_THAT(load_memmap(folder()), TensorDictEq(td));
  EXPECT_EQ(names_in(folder()), (std::vector<std::string>{"flags", "meta.json", "x.memmap"}));
  EXPECT_EQ(names_in(around()), (std::vector<std::string>{"tree"}));
  EXPECT_EQ(fs::status(folder()).permissions(), fs::perms::owner_all);
  EXPECT_EQ(old.size(), 4u);
  old["x"].fill_(1);  // the file has no name any more, but is there
  EXPECT_THAT(load_memmap(folder()), TensorDictEq(td));
}

TEST_F(MemmapTest, LeavesMappedFromTheFolderCanBeSavedThere) {
  const TensorDict td({{"x", at::rand({1000})}, {"y", at::rand({1000})}}, {1000});
  memmap(td, folder());
  const TensorDict loaded = load_memmap(folder());
  const TensorDict swapped({{"x", loaded["y"]}, {"y", loaded["x"]}, {"tail", loaded["x"].slice(0, 990)}});
  memmap(swapped, folder());
  EXPECT_THAT(load_memmap(folder()),
              TensorDictEq(TensorDict({{"x", td["y"]}, {"y", td["x"]}, {"tail", td["x"].slice(0, 990)}})));
}

TEST_F(MemmapTest, FoldersAroundAreMadeAndLinksToTheFolderAreFollowed) {
  const fs::path deep = around() / "a" / "b";
  memmap(TensorDict({{"x", at::ones({1})}}), deep.string() + "/");
  fs::create_directory_symlink(deep, around() / "link");
  memmap(TensorDict({{"y", at::ones({1})}}), around() / "link");
  EXPECT_TRUE(fs::is_symlink(around() / "link"));
  EXPECT_TRUE(load_memmap(deep).contains("y"));
  EXPECT_TRUE(load_memmap(around() / "link").contains("y"));
}

TEST_F(MemmapTest, NamesOfFilesAreEncoded) {
  const TensorDict td({{"k/l", at::ones({1})}, {"a b.c%:\n", at::ones({2})}, {"\xc3\xa9", at::ones({3})}});
  memmap(td, folder());
  EXPECT_EQ(names_in(folder()), (std::vector<std::string>{"a%20b", "k%2Fl.memmap", "meta.json", "\xc3\xa9.memmap"}));
  EXPECT_EQ(names_in(in("a%20b")), (std::vector<std::string>{"c%25%3A%0A.memmap", "meta.json"}));
  EXPECT_THAT(load_memmap(folder()), TensorDictEq(td));
}

TEST_F(MemmapTest, NamesThatAreNotEncodedAreFoundToo) {
  const TensorDict td({{"a b", at::ones({1})}, {"c d.x", at::ones({2})}});
  memmap(td, folder());
  fs::rename(in("a%20b.memmap"), in("a b.memmap"));
  fs::rename(in("c%20d"), in("c d"));
  EXPECT_THAT(load_memmap(folder()), TensorDictEq(td));
}

TEST_F(MemmapTest, DepthIsNotLimitedByOpenFilesOrTheLengthOfPaths) {
  std::string path = "names";
  for (int i = 0; i < 1100; ++i) path += ".names";
  const TensorDict td({{path, at::ones({2})}, {"b", at::zeros({2})}}, {2});
  EXPECT_THAT(memmap(td, folder()), TensorDictEq(td));
  EXPECT_THAT(load_memmap(folder()), TensorDictEq(td));
  memmap(TensorDict({{"b", at::zeros({2})}}), folder());
  EXPECT_EQ(names_in(around()), (std::vector<std::string>{"tree"}));
}

TEST_F(MemmapTest, LeavesThatCannotBeWrittenAreListedAndNothingIs) {
  memmap(TensorDict({{"x", at::ones({1})}}), folder());
  const TensorDict td({{"sparse", at::eye(2).to_sparse()},
                       {"a.meta", at::empty({2}, at::kMeta)},
                       {"fine", at::ones({1})},
                       {"shape", at::ones({1})},
                       {"a.device.x", at::ones({1})},
                       {"_type", at::ones({1})},
                       {"float8", at::ones({1}).to(at::kFloat8_e5m2)},
                       {"\xff", at::ones({1})}});
  EXPECT_THAT([&] { memmap(td, folder()); },
              ThrowsWith<c10::ValueError>("memmap", "\"sparse\"", "\"a.meta\"", "\"shape\"", "\"a.device.x\"",
                                          "\"_type\"", "\"float8\": dtype Float8_e5m2", "\"\xff\": "));
  try {
    memmap(td, folder());
  } catch (const c10::ValueError& error) {
    EXPECT_THAT(error.what(), ::testing::Not(::testing::HasSubstr("\"fine\"")));
  }
  EXPECT_TRUE(load_memmap(folder()).contains("x"));
  EXPECT_EQ(names_in(around()), (std::vector<std::string>{"tree"}));
}

TEST_F(MemmapTest, WhatIsNoTreeIsNotReplaced) {
  fs::create_directory(folder());
  memmap(TensorDict({{"x", at::ones({1})}}), folder());  // an empty folder may be
  const auto save = [&] { memmap(example(), folder()); };
  EXPECT_THAT(([&] { memmap(example(), folder(), {.existsok = false}); }),
              ThrowsWith<c10::Error>(folder(), "existsok"));
  write_file(in("notes.txt"), "mine");
  EXPECT_THAT(save, ThrowsWith<c10::Error>("notes.txt", "as before"));
  EXPECT_EQ(read_file(in("notes.txt")), "mine");
  fs::remove(in("notes.txt"));
  fs::create_directory(in("sub"));
  write_file(in("sub/notes.txt"), "mine");
  EXPECT_THAT(save, ThrowsWith<c10::Error>("sub/notes.txt"));
  fs::remove_all(in("sub"));
  fs::remove(in("meta.json"));
  EXPECT_THAT(save, ThrowsWith<c10::Error>(folder(), "no saved tree"));
  fs::remove_all(folder());
  write_file(folder(), "a file");
  EXPECT_THAT(save, ThrowsWith<c10::Error>(folder()));
  EXPECT_EQ(read_file(folder()), "a file");
  EXPECT_THAT([&] { memmap(example(), folder() + "/below"); }, ThrowsWith<c10::Error>(folder()));
  EXPECT_THAT([&] { memmap(example(), ""); }, ThrowsWith<c10::Error>("memmap"));
  EXPECT_THAT([&] { memmap(example(), "/"); }, ThrowsWith<c10::Error>("\"/\""));
}

// --- What load refuses

class LoadMemmapTest : public MemmapTest {
 protected:
  LoadMemmapTest() { memmap(example(), folder()); }

  template <typename... Parts>
  void expect_refused(const Parts&... parts) const {
    EXPECT_THAT([&] { load_memmap(folder()); }, ThrowsWith<c10::Error>("load_memmap", folder(), parts...));
    EXPECT_THAT(([&] { load_memmap(folder(), {.read_only = true}); }), ThrowsWith<c10::Error>(parts...));
  }
};

TEST_F(LoadMemmapTest, AMissingFolderOrFileIsNamed) {
  EXPECT_THAT([&] { load_memmap(folder() + "_no"); }, ThrowsWith<c10::Error>("_no", "No such file"));
  fs::rename(in("part/w.memmap"), in("w"));
  expect_refused("part/w.memmap", "No such file");
  fs::rename(in("w"), in("part/w.memmap"));
  fs::remove(in("part/meta.json"));
  expect_refused("part/meta.json");
  fs::remove_all(in("part"));
  expect_refused("tree/part");
}

TEST_F(LoadMemmapTest, AFileOfAnotherLengthIsNamed) {
  fs::resize_file(in("x.memmap"), 47);
  expect_refused("x.memmap", "47 bytes, expected 48", "\"x\"", "torch.float64", "[2, 3]");
  fs::resize_file(in("x.memmap"), 56);
  expect_refused("x.memmap", "56 bytes");
  EXPECT_EQ(fs::file_size(in("x.memmap")), 56u);  // nothing makes it fit
}

TEST_F(LoadMemmapTest, AFileForALeafWithoutElementsMustBeEmpty) {
  memmap(TensorDict({{"none", at::ones({0, 2})}}), folder());
  write_file(in("none.memmap"), "");
  EXPECT_EQ(load_memmap(folder()).size(), 1u);
  write_file(in("none.memmap"), "1");
  expect_refused("none.memmap", "1 bytes, expected 0");
}

TEST_F(LoadMemmapTest, LinksAndWhatIsNoFileAreRefused) {
  const fs::path other = around() / "other";
  fs::rename(in("x.memmap"), other);
  fs::create_symlink(other, in("x.memmap"));
  expect_refused("x.memmap", "symbolic link");
  fs::remove(in("x.memmap"));
  fs::create_directory(in("x.memmap"));
  expect_refused("x.memmap");
  fs::remove(in("x.memmap"));
  ASSERT_EQ(::mkfifo(in("x.memmap").c_str(), 0600), 0);
  expect_refused("x.memmap", "no file");
  fs::remove(in("x.memmap"));
  fs::rename(other, in("x.memmap"));
  EXPECT_EQ(load_memmap(folder()).size(), 4u);

  fs::rename(in("part"), other);
  fs::create_directory_symlink(other, in("part"));
  expect_refused("tree/part", "symbolic link");
  fs::remove(in("part"));
  fs::rename(other, in("part"));
  fs::rename(in("meta.json"), other);
  fs::create_symlink(other, in("meta.json"));
  expect_refused("meta.json", "symbolic link");
}

TEST_F(LoadMemmapTest, NoNameLeadsOutOfTheFolder) {
  memmap(TensorDict({{"x", at::ones({1})}}), (around() / "out").string());
  const char* keys[] = {"../out", "..", ".", "/etc", "out/../../out", "\\u0000", ""};
  for (const char* key : keys) {
    memmap(TensorDict({{"x.y", at::ones({1})}}), folder());
    edit("meta.json", "\"x\"", std::string("\"") + key + "\"");
    expect_refused("tree/");
    memmap(TensorDict({{"x", at::ones({1})}}), folder());
    edit("meta.json", "\"x\"", std::string("\"") + key + "\"");
    expect_refused("tree/");
  }
}

TEST_F(LoadMemmapTest, MetadataIsCheckedKeyByKey) {
  const std::string good = read_file(in("meta.json"));
  const auto expect_bad = [&](const std::string& old_text, const std::string& new_text, const char* said) {
    SCOPED_TRACE(new_text);
    write_file(in("meta.json"), good);
    edit("meta.json", old_text, new_text);
    expect_refused("meta.json", said);
  };
  expect_bad("[2,3]", "[2,-3]", "\"x\": \"shape\" has the size -3");
  expect_bad("[2,3]", "[2,3.5]", "\"x\"");
  expect_bad("[2,3]", "[2,9223372036854775808]", "\"x\"");
  expect_bad("[2,3]", "[2,4611686018427387904,4]", "\"x\": \"shape\" is too large");
  expect_bad("[2,3]", "[2,0,4611686018427387904,4]", "\"x\": \"shape\" is too large");
  expect_bad("[2,3]", "\"23\"", "\"x\": no list \"shape\"");
  expect_bad("[2,3]", "[3,2]", "\"x\" has shape [3, 2], expected to start with [2]");
  expect_bad("\"shape\": [2]", "\"shape\": [3]", "expected to start with [3]");
  expect_bad("\"shape\": [2]", "\"shape\": 2", "no list \"shape\"");
  expect_bad("torch.float64", "torch.float63", "\"x\": \"dtype\" is \"torch.float63\"");
  expect_bad("torch.float64", "torch.quint8", "\"x\": \"dtype\"");
  expect_bad("\"is_nested\":false", "\"is_nested\":true", "\"is_nested\"");
  expect_bad("\"x\": {", "\"x\": 5, \"z\": {", "\"x\": neither a leaf nor a part");
  expect_bad("\"x\": {", "\"flags\": {", "a key comes twice");
  expect_bad("\"dtype\":", "\"dtype\":\"torch.int8\",\"dtype\":", "a key comes twice");
  expect_bad("\"_format_version\": 1", "\"_format_version\": 2", "format version 2");
  expect_bad("\"_format_version\": 1", "\"_format_version\": -1", "format version -1");
  expect_bad("tensordict:TensorDict", "tensordict:Other", "no TensorDict");
  expect_bad("\"_type\"", "\"type\"", "\"_type\"");
  expect_bad("{", "[", "");
  expect_bad("{", "", "");
  for (const std::string& text : {std::string(), std::string("[]"), std::string("5"), std::string(100000, '['),
                                  good.substr(0, good.size() - 1), good + "x", std::string("\0", 1)}) {
    write_file(in("meta.json"), text);
    expect_refused("meta.json");
  }
}

TEST_F(LoadMemmapTest, PartsHaveTheBatchSizeAround) {
  edit("part/meta.json", "\"shape\": [2,3]", "\"shape\": [3]");
  expect_refused("part/meta.json", "[3], expected to start with", "[2]");
  edit("part/meta.json", "\"shape\": [3]", "\"shape\": [2,3,4]");
  expect_refused("part/");
}

TEST_F(LoadMemmapTest, ADottedKeyMeetsTheBatchSizeOfItsPart) {
  edit("meta.json", "\"x\"", "\"part.x\"");
  fs::rename(in("x.memmap"), in("part.x.memmap"));
  EXPECT_EQ(load_memmap(folder())["part.x"].sizes(), (std::vector<int64_t>{2, 3}));
  edit("meta.json", "[2,3]", "[2,1,3]");
  expect_refused("tree/meta.json", "\"part.x\"");
}

}  // namespace
}  // namespace graft
