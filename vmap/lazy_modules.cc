#include "vmap/lazy_modules.h"

#include <c10/util/Exception.h>

#include <utility>
#include <vector>

#include "functional/module_state.h"

namespace graft {

LazyStack lazy_from_modules(const ModuleRefs& modules) {
  TORCH_CHECK_VALUE(!modules.modules().empty(), "lazy_from_modules: no modules, expected at least one");
  std::vector<TensorDict> states;
  for (torch::nn::Module* module : modules.modules()) states.push_back(from_module(*module));
  return LazyStack(std::move(states));
}

}  // namespace graft
