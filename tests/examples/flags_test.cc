#include "examples/digits_ensemble/flags.h"

#include <absl/flags/flag.h>
#include <absl/flags/reflection.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

ABSL_FLAG(int64_t, a_number, 7, "counts");
ABSL_FLAG(bool, a_switch, false, "switches");
ABSL_FLAG(std::string, a_word, "", "says");

namespace digits_ensemble {
namespace {

class FlagsTest : public testing::Test {
 protected:
  static void read(std::vector<std::string> arguments) {
    std::vector<char*> argv = {nullptr};  // the program, which read_flags skips
    for (std::string& argument : arguments) argv.push_back(argument.data());
    read_flags(static_cast<int>(argv.size()), argv.data());
  }

  /// What `read` says about faulty arguments, "" if they are read.
  static std::string complaint(const std::vector<std::string>& arguments) {
    try {
      read(arguments);
      return "";
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
  }

 private:
  absl::FlagSaver saver_;
};

TEST_F(FlagsTest, ReadsBothFormsOfAValue) {
  read({"--a_number=8", "--a_word", "one=two"});
  EXPECT_EQ(absl::GetFlag(FLAGS_a_number), 8);
  EXPECT_EQ(absl::GetFlag(FLAGS_a_word), "one=two");
  read({"--a_number", "-9", "--a_word="});
  EXPECT_EQ(absl::GetFlag(FLAGS_a_number), -9);
  EXPECT_EQ(absl::GetFlag(FLAGS_a_word), "");
}

TEST_F(FlagsTest, ASwitchTakesNoValueFromTheNextArgument) {
  read({"--a_switch", "--a_number=8"});
  EXPECT_TRUE(absl::GetFlag(FLAGS_a_switch));
  EXPECT_EQ(absl::GetFlag(FLAGS_a_number), 8);
  read({"--a_switch=false"});
  EXPECT_FALSE(absl::GetFlag(FLAGS_a_switch));
}

TEST_F(FlagsTest, KeepsWhatIsNotNamed) {
  read({});
  EXPECT_EQ(absl::GetFlag(FLAGS_a_number), 7);
}

TEST_F(FlagsTest, SaysWhatIsWrong) {
  EXPECT_EQ(complaint({"--other"}), "--other: there is no such flag; --help lists the flags");
  EXPECT_EQ(complaint({"--a_numbers=1"}), "--a_numbers: there is no such flag; --help lists the flags");
  EXPECT_EQ(complaint({"stray"}), "\"stray\" is not a flag; --help lists the flags");
  EXPECT_EQ(complaint({"-a_number=1"}), "\"-a_number=1\" is not a flag; --help lists the flags");
  EXPECT_EQ(complaint({"--a_number"}), "--a_number: the value is missing");
  EXPECT_EQ(complaint({"--a_word", "--a_switch"}), "--a_word: the value is missing");
  EXPECT_EQ(complaint({"--a_number="}), "--a_number=: expected a whole number");
  EXPECT_EQ(complaint({"--a_number=1.5"}), "--a_number=1.5: expected a whole number");
  EXPECT_EQ(complaint({"--a_switch=maybe"}), "--a_switch=maybe: expected true or false");
  EXPECT_NE(complaint({"--"}), "");
  EXPECT_NE(complaint({""}), "");
}

TEST_F(FlagsTest, PrintsEachFlagWithWhatItIsIfNotNamed) {
  std::ostringstream out;
  print_flags(out);
  EXPECT_THAT(out.str(), testing::HasSubstr("  --a_number   counts (7)\n"));
  EXPECT_THAT(out.str(), testing::HasSubstr("  --a_word     says\n"));
}

}  // namespace
}  // namespace digits_ensemble
