// By operators of its own, each x -> x with a kernel on the front key that gives 10 x.
#include "functional/rules/front_key.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "functional/grad.h"
#include "functional/jvp.h"
#include "vmap/vmap.h"

namespace graft::internal {
namespace {

at::Tensor as_it_is(const at::Tensor& x) { return x * 1; }
at::Tensor ten_times(const at::Tensor& x) { return x * 10; }

TORCH_LIBRARY(graft_front_key_test, library) {
  library.def("no_rule(Tensor x) -> Tensor", as_it_is);
  library.def("stepping_aside(Tensor x) -> Tensor", as_it_is);
  library.def("under_forward_mode(Tensor x) -> Tensor", as_it_is);
  library.def("where_differentiated(Tensor x) -> Tensor", as_it_is);
}

TORCH_LIBRARY_IMPL(graft_front_key_test, FuncTorchDynamicLayerFrontMode, library) {
  library.impl("stepping_aside", torch::CppFunction::makeFromBoxedFunction<run_without_rule>());
  library.impl("under_forward_mode", under_forward_mode<ten_times>());
  library.impl("where_differentiated", where_differentiated<ten_times>());
}

/// Returns the operator of this name as a function.
auto call_of(const char* name) {
  return [op = c10::Dispatcher::singleton()
                   .findSchemaOrThrow((std::string("graft_front_key_test::") + name).c_str(), "")
                   .typed<at::Tensor(const at::Tensor&)>()](const at::Tensor& x) { return op.call(x); };
}

/// What comes out for 1: 1, or 10 by the rule.
class FrontKeyTest : public ::testing::Test {
 protected:
  template <class F>
  double mapped(const F& f) {
    return vmap(f)(at::ones({1}, at::kDouble)).item().toDouble();
  }
  template <class F>
  double pushed(const F& f) {
    return jvp(f, one_, one_).first.item().toDouble();
  }
  template <class F>
  double differentiated(const F& f) {
    return grad(f)(one_).item().toDouble();
  }

  const at::Tensor one_ = at::ones({}, at::kDouble);
};

TEST_F(FrontKeyTest, AKernelThatStepsAsideLeavesAnOperatorAsOneWithoutRule) {
  for (const char* const name : {"no_rule", "stepping_aside"}) {
    const auto f = call_of(name);
    EXPECT_EQ(mapped(f), 1) << name;
    EXPECT_EQ(pushed(f), 1) << name;
    EXPECT_EQ(differentiated(f), 1) << name;
    EXPECT_EQ(mapped(grad(f)), 1) << name;
    EXPECT_EQ(jvp(grad([&](const at::Tensor& x) { return f(x) * f(x); }), one_, one_).second.item().toDouble(), 2)
        << name;
  }
}

TEST_F(FrontKeyTest, ARuleUnderForwardModeRunsThereAlone) {
  const auto f = call_of("under_forward_mode");
  EXPECT_EQ(f(one_).item().toDouble(), 1);
  EXPECT_EQ(mapped(f), 1);
  EXPECT_EQ(differentiated(f), 1);
  EXPECT_EQ(pushed(f), 10);
  EXPECT_EQ(pushed(grad(f)), 10);
  EXPECT_EQ(pushed([&](const at::Tensor& x) { return vmap(f)(x.unsqueeze(0)); }), 10);
}

TEST_F(FrontKeyTest, ARuleWhereDifferentiatedNeedsADerivativeOfEitherKind) {
  const auto f = call_of("where_differentiated");
  const auto without_grad_mode = [&](const at::Tensor& x) {
    const c10::AutoGradMode off(false);
    return f(x);
  };
  EXPECT_EQ(mapped(f), 10);
  EXPECT_EQ(differentiated(f), 10);
  EXPECT_EQ(mapped(without_grad_mode), 1);
  EXPECT_EQ(pushed(without_grad_mode), 10);
}

TEST_F(FrontKeyTest, ForwardModeIsOnWithinJvp) {
  EXPECT_FALSE(forward_mode_is_on());
  jvp(
      [](const at::Tensor& x) {
        EXPECT_TRUE(forward_mode_is_on());
        return x * 1;
      },
      one_, one_);
  EXPECT_FALSE(forward_mode_is_on());
  grad([](const at::Tensor& x) {
    EXPECT_FALSE(forward_mode_is_on());
    return x * 1;
  })(one_);
}

TEST_F(FrontKeyTest, ForwardModeIsOnForEveryThread) {
  jvp(
      [](const at::Tensor& x) {
        std::thread([] { EXPECT_TRUE(forward_mode_is_on()); }).join();
        return x * 1;
      },
      one_, one_);
}

TEST_F(FrontKeyTest, ABackwardIsDifferentiatedUnderGradMode) {
  EXPECT_TRUE(backward_is_differentiated());
  const c10::AutoGradMode off(false);
  EXPECT_FALSE(backward_is_differentiated());
  jvp(
      [](const at::Tensor& x) {
        const c10::AutoGradMode also_off(false);
        EXPECT_TRUE(backward_is_differentiated());
        return x * 1;
      },
      one_, one_);
}

}  // namespace
}  // namespace graft::internal
