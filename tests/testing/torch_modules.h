// A catalog of the torch::nn modules that hold tensors, each with what it takes to call it; torch_modules_test.cc sees
// to it that no class is left out.
//
//   for (const TorchModule& entry : torch_modules()) {
//     const auto module = entry.make();
//     const torch::Tensor y = entry.call(*module, entry.inputs());
//   }
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace graft::testing {

/// A module in one set-up: options, mode, and the way it is called.
struct TorchModule {
  using Inputs = std::vector<torch::Tensor>;

  std::string name;  ///< of letters and digits
  std::function<std::shared_ptr<torch::nn::Module>()> make;
  std::function<Inputs()> inputs;  ///< of one sample as a batch of one: integers, or random numbers in double
  std::function<torch::Tensor(torch::nn::Module&, const Inputs&)> call;
};

/// Prints the name.
std::ostream& operator<<(std::ostream& out, const TorchModule& entry);

/// Returns the catalog. A class with several ways to use its tensors has an entry for each.
const std::vector<TorchModule>& torch_modules();

}  // namespace graft::testing
