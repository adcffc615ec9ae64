#include "tests/testing/tensordict_matchers.h"

#include <ATen/Functions.h>

#include <sstream>

#include "tensordict/structure.h"

namespace graft::testing {
namespace {

class NearMatcher {
 public:
  using is_gtest_matcher = void;

  NearMatcher(const TensorDict& expected, double tolerance) : expected_(expected), tolerance_(tolerance) {}

  bool MatchAndExplain(const TensorDict& got, std::ostream* explanation) const {
    std::ostringstream lines;
    lines << describe_mismatch(got, expected_);
    if (got.batch_size() != expected_.batch_size()) lines << "\n  another batch size";
    if (lines.str().empty()) describe_values(got, lines);
    if (explanation != nullptr) *explanation << lines.str();
    return lines.str().empty();
  }

  void DescribeTo(std::ostream* stream) const { *stream << "is within " << tolerance_ << " of " << expected_; }
  void DescribeNegationTo(std::ostream* stream) const {
    *stream << "is not within " << tolerance_ << " of " << expected_;
  }

 private:
  void describe_values(const TensorDict& got, std::ostream& lines) const {
    for (const auto& [path, value] : got.leaves()) {
      const at::Tensor& expected = expected_.at(path);
      if (at::allclose(value, expected, /*rtol=*/0, tolerance_, /*equal_nan=*/true)) continue;
      lines << "\n  \"" << path << "\" is\n" << value << "\n  and should be\n" << expected;
    }
  }

  TensorDict expected_;
  double tolerance_;
};

}  // namespace

::testing::Matcher<const TensorDict&> TensorDictNear(const TensorDict& expected, double tolerance) {
  return NearMatcher(expected, tolerance);
}

::testing::Matcher<const TensorDict&> TensorDictEq(const TensorDict& expected) { return TensorDictNear(expected, 0); }

}  // namespace graft::testing
