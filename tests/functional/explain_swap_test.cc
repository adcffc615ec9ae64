#include "functional/explain_swap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>

#include "functional/slots.h"

namespace {

/// One of each: `known` by annotation, `list` by its class, `raw` by nothing, `fc` by the table.
struct PartImpl : torch::nn::Module {
  PartImpl() { known = register_parameter("known", torch::ones({2})); }
  torch::Tensor known;
};

struct NetImpl : torch::nn::Module {
  NetImpl() {
    raw = register_parameter("raw", torch::ones({2}));
    part = register_module("part", std::make_shared<PartImpl>());
    list = register_module("list", std::make_shared<torch::nn::ParameterListImpl>());
    list->append(torch::ones({2}));
    fc = register_module("fc", torch::nn::Linear(torch::nn::LinearOptions(2, 2).bias(false)));
  }
  torch::Tensor raw;
  std::shared_ptr<PartImpl> part;
  std::shared_ptr<torch::nn::ParameterListImpl> list;
  torch::nn::Linear fc = nullptr;
};

}  // namespace

GRAFT_SLOTS(PartImpl, known)

namespace graft {
namespace {

using ::testing::HasSubstr;

TEST(ExplainSwapTest, SaysForEachNameHowItIsReached) {
  NetImpl net;
  const auto explanations = explain_swap(net);
  ASSERT_EQ(explanations.size(), 5);
  EXPECT_EQ(explanations[0].name, "raw");
  EXPECT_EQ(explanations[0].mechanism, SwapMechanism::kRedirect);
  EXPECT_THAT(explanations[0].why, HasSubstr("GRAFT_SLOTS((anonymous namespace)::NetImpl"));
  EXPECT_EQ(explanations[1].name, "part.known");
  EXPECT_EQ(explanations[1].mechanism, SwapMechanism::kRebind);
  EXPECT_THAT(explanations[1].why, HasSubstr("PartImpl::known"));
  EXPECT_EQ(explanations[2].name, "list.0");
  EXPECT_EQ(explanations[2].mechanism, SwapMechanism::kRebind);
  EXPECT_THAT(explanations[2].why, HasSubstr("all that torch::nn::ParameterListImpl reads"));
  EXPECT_EQ(explanations[3].name, "fc.weight");
  EXPECT_THAT(explanations[3].why, HasSubstr("torch::nn::LinearImpl::weight"));
  EXPECT_EQ(explanations[4].name, "fc.bias");
  EXPECT_EQ(explanations[4].mechanism, SwapMechanism::kRebind);
}

TEST(ExplainSwapTest, NamesEveryMemberOfATiedParameter) {
  struct TiedImpl : torch::nn::Module {
    TiedImpl() {
      first = register_module("first", torch::nn::Linear(2, 2));
      second = register_module("second", torch::nn::Linear(2, 2));
      second->weight = first->weight;
    }
    torch::nn::Linear first = nullptr, second = nullptr;
  } tied;
  EXPECT_THAT(explain_swap(tied)[0].why, HasSubstr("LinearImpl::weight"));
  EXPECT_EQ(explain_swap(tied)[2].name, "second.weight");
}

TEST(ExplainSwapTest, SaysWhereAModuleContradictsItself) {
  torch::nn::Linear linear(2, 2);
  linear->weight = torch::zeros({2, 2});
  EXPECT_EQ(explain_swap(*linear)[0].mechanism, SwapMechanism::kRefused);
  EXPECT_THAT(explain_swap(*linear)[0].why, HasSubstr("its member weight of torch::nn::LinearImpl holds another"));
}

TEST(ExplainSwapTest, PrintsALineForEachName) {
  torch::nn::Linear linear(2, 2);
  std::ostringstream text;
  text << explain_swap(*linear);
  EXPECT_EQ(text.str(),
            "weight  rebind    its entry is set, and torch::nn::LinearImpl::weight\n"
            "bias    rebind    its entry is set, and torch::nn::LinearImpl::bias\n");
}

}  // namespace
}  // namespace graft
