#include "tensordict/internal/write_check.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "functional/internal/transform_level.h"
#include "tests/testing/throws_with.h"

namespace graft::internal {
namespace {

using at::Tensor;
using testing::ThrowsWith;

bool throws(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error&) {
    return true;
  }
  return false;
}

/// Is `target` refused by the check, and if not, does LibTorch write `value` to it? Both have to say the same.
bool is_refused(Tensor target, const Tensor& value) {
  KeyTable keys;
  keys.insert("a");
  const bool checked = throws([&] { check_writable("f", keys, {target}, {value}); });
  const bool tried = throws([&] { target.copy_(value); });
  EXPECT_EQ(checked, tried);
  return checked;
}

struct Target {
  std::string what;
  std::function<Tensor()> make;
  bool refuses_numbers;
  bool refuses_gradients;
  bool refuses_without_grad_mode;
};

const std::vector<Target> kTargets{
    {"a plain tensor", [] { return at::zeros({2}); }, false, false, false},
    {"a leaf of autograd", [] { return at::zeros({2}).requires_grad_(); }, true, true, false},
    {"a view of one", [] { return at::zeros({4}).requires_grad_().narrow(0, 0, 2); }, true, true, false},
    {"computed from one", [] { return at::zeros({2}).requires_grad_() * 2; }, false, false, false},
    {"one of several views",
     [] {
       return at::zeros({3, 2}).unbind()[0];
     },
     false, true, false},
    {"one of several with gradients",
     [] {
       return (at::zeros({3, 2}).requires_grad_() * 2).unbind()[0];
     },
     true, true, false},
    {"a view made without grad mode",
     [] {
       const Tensor base = at::zeros({4}).requires_grad_() * 2;
       const at::NoGradGuard no_grad;
       return base.narrow(0, 0, 2);
     },
     true, true, false},
    {"expanded", [] { return at::zeros({1}).expand({2}); }, true, true, true},
    {"made in inference mode",
     [] {
       const c10::InferenceMode inference;
       return at::zeros({2});
     },
     true, true, true},
};

TEST(WriteCheckTest, RefusesWhatLibTorchRefuses) {
  for (const Target& target : kTargets) {
    SCOPED_TRACE(target.what);
    const Tensor number = at::ones({2});
    const Tensor with_history = at::ones({2}).requires_grad_() * 3;
    EXPECT_EQ(is_refused(target.make(), number), target.refuses_numbers);
    EXPECT_EQ(is_refused(target.make(), with_history), target.refuses_gradients);
    const Tensor made = target.make();
    const at::NoGradGuard no_grad;
    EXPECT_EQ(is_refused(made, number), target.refuses_without_grad_mode);
  }
}

TEST(WriteCheckTest, TakesTensorsWithoutStrides) {
  EXPECT_FALSE(is_refused(at::eye(2).to_sparse(), at::ones({2, 2}).to_sparse()));
  EXPECT_FALSE(is_refused(at::zeros({2}, at::kMeta), at::ones({2}, at::kMeta)));
}

TEST(WriteCheckTest, RefusesShapesThatDoNotBroadcastAndImaginaryPartsThatWouldBeLost) {
  EXPECT_FALSE(is_refused(at::zeros({2, 3}), at::ones({3})));
  EXPECT_TRUE(is_refused(at::zeros({2, 3}), at::ones({2})));
  EXPECT_FALSE(is_refused(at::zeros({2}, at::kLong), at::ones({2})));
  KeyTable keys;
  keys.insert("a");
  // LibTorch warns and drops it.
  EXPECT_THAT([&] { check_writable("f", keys, {at::zeros({2})}, {at::zeros({2}, at::kComplexFloat)}); },
              ThrowsWith<c10::ValueError>("f: ", "\"a\": dtype c10::complex<float>"));
}

TEST(WriteCheckTest, ListsEveryLeafByItsPath) {
  KeyTable keys;
  keys.insert("x.y");
  keys.insert("fine");
  keys.insert("z");
  EXPECT_THAT(
      [&] {
        check_writable("f", keys, {at::zeros({2}), at::zeros({2}), at::zeros({1}).expand({2})},
                       {at::ones({3}), at::ones({2}), at::ones({2})});
      },
      ThrowsWith<c10::ValueError>("f: these leaves cannot be written:", "\"x.y\": shape [3]",
                                  "\"z\": the leaf there is", "Nothing is changed."));
}

TEST(WriteCheckTest, LeavesTheRestToTheOperatorsOfATransform) {
  KeyTable keys;
  keys.insert("a");
  const VmapLevel vmap(/*batch_size=*/2, Randomness::kError);
  EXPECT_NO_THROW(check_writable("f", keys, {vmap.batch(at::zeros({2, 3}), 0)}, {at::ones({3})}));
}

}  // namespace
}  // namespace graft::internal
