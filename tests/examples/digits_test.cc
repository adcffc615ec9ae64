#include "examples/digits_ensemble/digits.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace digits_ensemble {
namespace {

using testing::HasSubstr;

constexpr char kDigitsCsv[] = "examples/data/digits.csv";

/// One line of the file: every pixel `pixel`, then `label`.
std::string line(const std::string& pixel, const std::string& label) {
  std::string text;
  for (int64_t i = 0; i < kPixels; ++i) text += pixel + ",";
  return text + label + "\n";
}

std::filesystem::path write(const std::string& content) {
  std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "some.csv";
  std::ofstream(path) << content;
  return path;
}

/// What `read_digits` says about a file of this content, "" if it is content.
std::string complaint(const std::string& content) {
  try {
    read_digits(write(content));
    return "";
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
}

TEST(ReadDigitsTest, ReadsTheDigitsOfTheExample) {
  const Digits digits = read_digits(kDigitsCsv);
  EXPECT_EQ(digits.pixels.sizes(), at::IntArrayRef({1797, 64}));
  EXPECT_EQ(digits.labels.sizes(), at::IntArrayRef({1797}));
  EXPECT_EQ(digits.pixels[0][2].item<float>(), 5.0F / 16);
  EXPECT_EQ(digits.pixels.max().item<float>(), 1);
  EXPECT_EQ(digits.labels.slice(0, 0, 3).eq(at::arange(3)).all().item<bool>(), true);
}

TEST(ReadDigitsTest, AcceptsFractionsCarriageReturnsAndNoNewlineAtTheEnd) {
  std::string content = line("0.5", "3") + line("16", "9");
  content.pop_back();
  content.insert(content.find('\n'), "\r");
  const Digits digits = read_digits(write(content));
  EXPECT_EQ(digits.pixels[0][0].item<float>(), 0.5F / 16);
  EXPECT_EQ(digits.labels[1].item<int64_t>(), 9);
}

TEST(ReadDigitsTest, NamesFileLineAndFault) {
  const std::string good = line("0", "1");
  EXPECT_THAT(complaint(good + "1,2,3\n"), HasSubstr("some.csv:2: expected 65 columns, found 3"));
  EXPECT_THAT(complaint(good + "0," + good), HasSubstr("some.csv:2: expected 65 columns, found 66"));
  EXPECT_THAT(complaint(good + "\n" + good), HasSubstr("some.csv:2: expected 65 columns, found 0"));
  EXPECT_THAT(complaint(good + line("x", "1")), HasSubstr("some.csv:2: column 1: \"x\" is not a pixel value"));
  EXPECT_THAT(complaint(line("", "1")), HasSubstr("\"\" is not a pixel value"));
  EXPECT_THAT(complaint(line("1 ", "1")), HasSubstr("\"1 \" is not a pixel value"));
  EXPECT_THAT(complaint(line("nan", "1")), HasSubstr("the pixel value nan is not in 0 to 16"));
  EXPECT_THAT(complaint(line("17", "1")), HasSubstr("the pixel value 17 is not in 0 to 16"));
  EXPECT_THAT(complaint(line("-1", "1")), HasSubstr("the pixel value -1 is not in 0 to 16"));
  EXPECT_THAT(complaint(line("1", "10")), HasSubstr("some.csv:1: column 65: the label 10 is not in 0 to 9"));
  EXPECT_THAT(complaint(line("1", "-1")), HasSubstr("the label -1 is not in 0 to 9"));
  EXPECT_THAT(complaint(line("1", "1.5")), HasSubstr("\"1.5\" is not a label"));
  EXPECT_THAT(complaint(""), HasSubstr("some.csv: the file is empty"));
}

TEST(ReadDigitsTest, RefusesWhatIsNoFile) {
  EXPECT_THROW(read_digits("no/such.csv"), c10::ValueError);
  EXPECT_THROW(read_digits(testing::TempDir()), c10::ValueError);
}

/// `count` digits; the pixels of each hold its number, so that it can be told from the others.
Digits numbered_digits(int64_t count) {
  const at::Tensor numbers = at::arange(count, at::kFloat);
  return {numbers.unsqueeze(1).expand({count, kPixels}).contiguous(), numbers.to(at::kLong).remainder(kClasses)};
}

TEST(GatherTest, KeepsTheShapeOfTheIndices) {
  const Digits picked = gather(numbered_digits(9), at::tensor({7, 0, 3, 3, 1, 8}).view({2, 3}));
  EXPECT_EQ(picked.pixels.sizes(), at::IntArrayRef({2, 3, 64}));
  EXPECT_EQ(picked.labels.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(picked.pixels[1][0][63].item<float>(), 3);
  EXPECT_EQ(picked.labels[1][2].item<int64_t>(), 8);
}

TEST(SplitDigitsTest, PutsEveryDigitInOnePart) {
  const Split split = split_digits(numbered_digits(1797), /*seed=*/0);
  EXPECT_EQ(split.train.labels.size(0), 1079);
  EXPECT_EQ(split.validation.labels.size(0), 359);
  EXPECT_EQ(split.test.labels.size(0), 359);

  const at::Tensor all = at::cat({split.train.pixels, split.validation.pixels, split.test.pixels}).select(1, 0);
  EXPECT_TRUE(at::equal(std::get<0>(all.sort()), at::arange(1797, at::kFloat)));
}

TEST(SplitDigitsTest, KeepsLabelsWithTheirPixels) {
  const Split split = split_digits(numbered_digits(100), /*seed=*/0);
  EXPECT_TRUE(at::equal(split.test.pixels.select(1, 0).to(at::kLong).remainder(kClasses), split.test.labels));
}

TEST(SplitDigitsTest, FollowsTheSeed) {
  const auto test_part = [](uint64_t seed) { return split_digits(numbered_digits(100), seed).test.pixels; };
  EXPECT_TRUE(at::equal(test_part(1), test_part(1)));
  EXPECT_FALSE(at::equal(test_part(1), test_part(2)));
}

TEST(SplitDigitsTest, RefusesTooFewDigits) { EXPECT_THROW(split_digits(numbered_digits(4), 0), c10::ValueError); }

}  // namespace
}  // namespace digits_ensemble
