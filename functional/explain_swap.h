// explain_swap: how each parameter and buffer of a module would be reached, and why.
//
//   std::cout << explain_swap(net);
//
//   fc.weight  rebind    its entry is set, and torch::nn::LinearImpl::weight
//   scale      redirect/alias  no member of NetImpl is known to hold it; functional_call exchanges it operator by ...
//
// What it cannot see: a member of a class without GRAFT_SLOTS that holds a tensor which is known otherwise. The first
// functional_call finds that.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "functional/module_ref.h"

namespace graft {

/// The way in which a leaf would come in the place of a tensor.
enum class SwapMechanism {
  kRebind,    ///< every handle is known and is set
  kRedirect,  ///< no member is known: functional_call exchanges it in every operator, a persistent write shares data
  kRefused,   ///< the module contradicts itself
};

/// One name of a module.
struct SwapExplanation {
  std::string name;
  SwapMechanism mechanism;
  std::string why;  ///< which handles are set, or what is missing
};

/// Returns one explanation for each parameter and buffer, also for names that hold nothing. A shared module appears
/// under each of its names. Nothing is installed.
/// \throws c10::ValueError if the module contains itself.
std::vector<SwapExplanation> explain_swap(ModuleRef module);

/// Prints a table, one name a line.
std::ostream& operator<<(std::ostream& stream, const std::vector<SwapExplanation>& explanations);

}  // namespace graft
