// Every kind of change that the snapshot is there to see, made by hand.
#include "tests/testing/module_snapshot.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "functional/internal/module_registry.h"
#include "functional/internal/transform_level.h"

namespace graft::testing {
namespace {

using ::testing::HasSubstr;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    fc = register_module("fc", torch::nn::Linear(torch::nn::LinearOptions(2, 2).bias(false)));
    norm = register_module("norm", torch::nn::BatchNorm1d(2));
    register_module("lstm", torch::nn::LSTM(2, 2));
  }
  torch::nn::Linear fc = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
};

/// Returns what the snapshot of a module says that `change` changed in it.
template <typename Change>
std::string seen(Change change) {
  NetImpl net;
  const Snapshot before(net);
  change(net);
  return before.changes_to(Snapshot(net));
}

TEST(SnapshotTest, SeesNothingWhenNothingChanged) {
  EXPECT_EQ(seen([](NetImpl&) {}), "");
}

TEST(SnapshotTest, SeesEachHandle) {
  EXPECT_THAT(seen([](NetImpl& net) { net.fc->weight = net.fc->weight.clone(); }), HasSubstr("member fc.weight#0"));
  EXPECT_THAT(seen([](NetImpl& net) { net.fc->bias = at::ones({2}); }), HasSubstr("member fc.bias#1: was empty"));
  EXPECT_THAT(seen([](NetImpl& net) {
                internal::parameter_registry(*net.fc)["weight"] = at::ones({2, 2});
              }),
              HasSubstr("parameter fc.weight"));
  EXPECT_THAT(seen([](NetImpl& net) { internal::buffer_registry(*net.norm)["running_mean"] = at::ones({2}); }),
              HasSubstr("buffer norm.running_mean"));
}

TEST(SnapshotTest, SeesNamesAndTheirOrder) {
  EXPECT_THAT(seen([](NetImpl& net) { net.register_buffer("extra", at::ones({1})); }), HasSubstr("extra: is new"));
  EXPECT_THAT(seen([](NetImpl& net) { internal::parameter_registry(*net.fc).erase("weight"); }), HasSubstr("is gone"));
  EXPECT_THAT(seen([](NetImpl& net) { net.replace_module("fc", torch::nn::Linear(2, 2)); }), HasSubstr("child fc"));
  EXPECT_THAT(seen([](NetImpl& net) {
                auto& registry = internal::parameter_registry(*net.norm);
                const at::Tensor weight = registry["weight"];
                registry.erase("weight");
                registry.insert("weight", weight);
              }),
              HasSubstr("norm.(parameters): was weight bias ; is bias weight"));
}

TEST(SnapshotTest, SeesFlagsVersionsAndValues) {
  EXPECT_THAT(seen([](NetImpl& net) { net.fc->weight.set_requires_grad(false); }), HasSubstr("requires_grad=0"));
  EXPECT_THAT(seen([](NetImpl& net) { net.norm->running_mean.add_(0); }), HasSubstr("version 1"));
  EXPECT_NE(seen([](NetImpl& net) { net.norm->running_mean.data_ptr<float>()[1] = 7; }), "");
  EXPECT_THAT(seen([](NetImpl& net) { net.fc->weight.mutable_grad() = at::ones({2, 2}); }), HasSubstr("gradient 0x"));
}

TEST(SnapshotTest, SeesTheThread) {
  NetImpl net;
  const Snapshot before(net);
  {
    const at::NoGradGuard no_grad;
    EXPECT_THAT(before.thread_changes_to(Snapshot(net)), HasSubstr("grad mode: was 1; is 0"));
  }
  {
    const c10::InferenceMode inference;
    EXPECT_THAT(before.thread_changes_to(Snapshot(net)), HasSubstr("inference mode: was 0; is 1"));
  }
  {
    const internal::GradLevel level;
    EXPECT_THAT(before.thread_changes_to(Snapshot(net)),
                AllOf(HasSubstr("number of transforms: was 0; is 1"), HasSubstr("included dispatch keys")));
  }
  EXPECT_EQ(before.changes_to(Snapshot(net)), "");
}

}  // namespace
}  // namespace graft::testing
