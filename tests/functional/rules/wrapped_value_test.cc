#include "functional/rules/wrapped_value.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "functional/grad.h"
#include "functional/jvp.h"
#include "vmap/vmap.h"

namespace graft::internal {
namespace {

/// Does `tensor` wrap just `value`?
bool is_within(const at::Tensor& tensor, const at::Tensor& value) {
  const at::Tensor* const wrapped = wrapped_value(tensor);
  return wrapped != nullptr && wrapped->is_same(value);
}

class WrappedValueTest : public ::testing::Test {
 protected:
  const at::Tensor x_ = at::rand({3, 2}, at::kDouble);
};

TEST_F(WrappedValueTest, AnOrdinaryTensorWrapsNothing) {
  EXPECT_EQ(wrapped_value(x_), nullptr);
  EXPECT_EQ(wrapped_value(at::Tensor()), nullptr);
  EXPECT_FALSE(is_mapped(x_));
  EXPECT_FALSE(is_mapped(at::Tensor()));
}

TEST_F(WrappedValueTest, AMappedTensorWrapsTheWhole) {
  vmap([&](const at::Tensor& x) {
    EXPECT_TRUE(is_within(x, x_));
    EXPECT_TRUE(is_mapped(x));
    EXPECT_FALSE(is_mapped(x_)) << "the same level maps over another tensor";
    EXPECT_FALSE(requires_grad_on_any_level(x));
    return x;
  })(x_);
}

TEST_F(WrappedValueTest, ADifferentiatedTensorWrapsItsValue) {
  grad([&](const at::Tensor& x) {
    EXPECT_TRUE(is_within(x, x_));
    EXPECT_FALSE(is_mapped(x));
    EXPECT_TRUE(requires_grad_on_any_level(x));
    EXPECT_FALSE(requires_grad_on_any_level(x_));
    EXPECT_FALSE(requires_grad_on_any_level(x.detach()));
    return x.sum();
  })(x_);
}

TEST_F(WrappedValueTest, EachLevelWrapsTheOneOutside) {
  grad([&](const at::Tensor& outer) {
    return grad([&](const at::Tensor& inner) {
             EXPECT_TRUE(is_within(inner, outer));
             EXPECT_TRUE(is_within(outer, x_));
             return inner.sum() * outer.sum();
           })(outer)
        .sum();
  })(x_);
}

TEST_F(WrappedValueTest, AMapIsFoundWithinAndOutsideADerivative) {
  const auto check = [](const at::Tensor& x) {
    EXPECT_TRUE(is_mapped(x));
    EXPECT_TRUE(requires_grad_on_any_level(x));
    return x.sum();
  };
  vmap(grad(check))(x_);
  grad([&](const at::Tensor& x) { return vmap(check)(x).sum(); })(x_);
}

TEST_F(WrappedValueTest, OrdinaryAutogradIsALevelToo) {
  const auto check = [](const at::Tensor& x) {
    EXPECT_TRUE(requires_grad_on_any_level(x));
    EXPECT_TRUE(requires_grad_on_any_level(x * 2));
    return x * 2;
  };
  const at::Tensor leaf = x_.clone().requires_grad_();
  check(leaf);
  vmap(check)(leaf);
  jvp(check, leaf, at::ones_like(x_));
}

TEST_F(WrappedValueTest, ADirectionAloneRequiresNoGrad) {
  jvp(
      [](const at::Tensor& x) {
        EXPECT_NE(wrapped_value(x), nullptr);
        EXPECT_FALSE(requires_grad_on_any_level(x));
        return x * 2;
      },
      x_, at::ones_like(x_));
}

}  // namespace
}  // namespace graft::internal
