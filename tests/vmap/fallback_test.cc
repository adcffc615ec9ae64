#include "vmap/fallback.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ThrowsWith;

using Counts = std::map<std::string, int64_t>;

/// It has no rule.
at::Tensor log_ndtr(const at::Tensor& x) { return at::special_log_ndtr(x); }

/// Keeps warnings, as a program would that has a handler of its own.
class KeptWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { messages_.push_back(warning.msg()); }
  const std::vector<std::string>& messages() const { return messages_; }

 private:
  std::vector<std::string> messages_;
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

class FallbackTest : public ::testing::Test {
 protected:
  const at::Tensor x_ = at::rand({3, 8}, at::kDouble);
};

TEST_F(FallbackTest, WarnsByDefault) {
  const KeptWarnings warnings;
  vmap(log_ndtr)(x_);
  EXPECT_THAT(warnings.messages(), ElementsAre(HasSubstr("aten::special_log_ndtr")));
}

TEST_F(FallbackTest, AReportCountsInPlaceOfWarnings) {
  const KeptWarnings warnings;
  {
    const FallbackReport report;
    vmap(log_ndtr)(x_);
    vmap(log_ndtr)(x_);
    EXPECT_EQ(report.operators(), (Counts{{"aten::special_log_ndtr", 2}}));
  }
  EXPECT_THAT(warnings.messages(), IsEmpty());
  vmap(log_ndtr)(x_);
  EXPECT_EQ(warnings.messages().size(), 1) << "the report has ended";
}

TEST_F(FallbackTest, OtherWarningsGoWhereTheyWent) {
  const KeptWarnings warnings;
  const FallbackReport report;
  TORCH_WARN("something else");
  EXPECT_THAT(warnings.messages(), ElementsAre("something else"));
  EXPECT_THAT(report.operators(), IsEmpty());
}

TEST_F(FallbackTest, AReportIsOfItsThread) {
  const FallbackReport report;
  std::thread([this] {
    const KeptWarnings warnings;
    vmap(log_ndtr)(x_);
    EXPECT_EQ(warnings.messages().size(), 1);
  }).join();
  EXPECT_THAT(report.operators(), IsEmpty());
}

TEST_F(FallbackTest, OperatorsWithARuleAreNotReported) {
  const FallbackReport report;
  vmap([](const at::Tensor& x) { return x.sin(); })(x_);
  EXPECT_THAT(report.operators(), IsEmpty());
}

TEST_F(FallbackTest, AReportIsPrintedOneOperatorALine) {
  const FallbackReport report;
  vmap([](const at::Tensor& x) { return log_ndtr(log_ndtr(x)); })(x_);
  vmap([](const at::Tensor& x) { return at::special_airy_ai(x); })(x_);
  std::ostringstream text;
  text << report;
  EXPECT_EQ(text.str(), "aten::special_airy_ai: 1 time\naten::special_log_ndtr: 2 times\n");
}

TEST_F(FallbackTest, LoopsAreErrorsIfAsked) {
  EXPECT_THAT([&] { vmap(log_ndtr, {.fallback = Fallback::kError})(x_); },
              ThrowsWith<c10::NotImplementedError>("vmap: aten::special_log_ndtr has no batching rule"));
  const FallbackReport report;
  vmap(log_ndtr)(x_);
  EXPECT_EQ(report.operators().size(), 1) << "no longer an error";
}

TEST_F(FallbackTest, WithoutLoopsThereIsNoError) {
  const auto sine = [](const at::Tensor& x) { return x.sin(); };
  EXPECT_TRUE(vmap(sine, {.fallback = Fallback::kError})(x_).equal(x_.sin()));
}

TEST_F(FallbackTest, OtherWarningsAreNoErrors) {
  const KeptWarnings warnings;
  const auto warning = [](const at::Tensor& x) {
    TORCH_WARN("something else");
    return x.sin();
  };
  vmap(warning, {.fallback = Fallback::kError})(x_);
  EXPECT_THAT(warnings.messages(), ElementsAre("something else"));
}

}  // namespace
}  // namespace graft
