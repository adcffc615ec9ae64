#include "tensordict/internal/dtypes.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace graft::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::Property;
using ::testing::StrEq;
using ::testing::Throws;

/// Matches a call that throws a c10::ValueError with this text and no other.
auto ThrowsExactly(const std::string& text) {
  return Throws<c10::ValueError>(Property(&c10::Error::what_without_backtrace, StrEq(text)));
}

bool can_require_grad(at::Tensor value) {
  try {
    value.requires_grad_();
  } catch (const c10::Error&) {
    return false;
  }
  return true;
}

TEST(DtypesTest, HaveGradientsWhereAutogradHasThem) {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kFloat8_e4m3fn,
                                     at::kComplexHalf, at::kComplexFloat, at::kComplexDouble}) {
    SCOPED_TRACE(dtype);
    EXPECT_TRUE(has_gradients(at::empty({2}, dtype)));
    EXPECT_TRUE(can_require_grad(at::empty({2}, dtype)));
  }
  for (const at::ScalarType dtype : {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong}) {
    SCOPED_TRACE(dtype);
    EXPECT_FALSE(has_gradients(at::empty({2}, dtype)));
    EXPECT_FALSE(can_require_grad(at::empty({2}, dtype)));
  }
}

TEST(DtypesTest, CheckAsksForEachLeafOnce) {
  const TensorDict tree({{"a", at::ones({2})}, {"x.b", at::ones({2}, at::kInt)}});
  std::vector<at::ScalarType> asked;
  const auto takes_all = [&](const at::Tensor& value) {
    asked.push_back(value.scalar_type());
    return true;
  };
  EXPECT_NO_THROW(check_dtypes("f", tree, takes_all, "any"));
  EXPECT_THAT(asked, ElementsAre(at::kFloat, at::kInt));
}

TEST(DtypesTest, CheckListsEveryLeafThatIsNotTakenAndNoOther) {
  const TensorDict tree({{"a", at::ones({2}, at::kInt)},
                         {"x.fine", at::ones({2}, at::kDouble)},
                         {"x.b", at::ones({2}, at::kBool)},
                         {"c", at::ones({2})}});
  const auto is_double = [](const at::Tensor& value) { return value.scalar_type() == at::kDouble; };
  EXPECT_THAT([&] { check_dtypes("f", tree, is_double, "double"); },
              ThrowsExactly("f: these leaves have a dtype that it does not take:\n"
                            "  \"a\": dtype int, expected double\n"
                            "  \"x.b\": dtype bool, expected double\n"
                            "  \"c\": dtype float, expected double"));
}

TEST(DtypesTest, FloatingAndComplexLeavesPass) {
  const TensorDict tree({{"half", at::ones({2}, at::kHalf)},
                         {"float", at::ones({2})},
                         {"part.complex", at::ones({2}, at::kComplexFloat)}});
  EXPECT_NO_THROW(check_floating_or_complex("f", tree));
}

TEST(DtypesTest, OtherLeavesAreListedByTheirPaths) {
  const TensorDict tree({{"float", at::ones({2})},
                         {"part.int", at::ones({2}, at::kInt)},
                         {"complex", at::ones({2}, at::kComplexFloat)},
                         {"bool", at::ones({2}, at::kBool)}});
  EXPECT_THAT([&] { check_floating_or_complex("f", tree); },
              ThrowsExactly("f: these leaves have a dtype that it does not take:\n"
                            "  \"part.int\": dtype int, expected a floating or complex one\n"
                            "  \"bool\": dtype bool, expected a floating or complex one"));
}

TEST(DtypesTest, ATreeWithoutLeavesPasses) {
  const auto takes_none = [](const at::Tensor&) { return false; };
  EXPECT_NO_THROW(check_dtypes("f", TensorDict(), takes_none, "none"));
  EXPECT_NO_THROW(check_floating_or_complex("f", TensorDict()));
}

}  // namespace
}  // namespace graft::internal
