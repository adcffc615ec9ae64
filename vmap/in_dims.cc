#include "vmap/in_dims.h"

#include <c10/util/Exception.h>

namespace graft {

std::vector<MappedDim> MappedDims::for_each(std::size_t count, const char* option, const char* values) const {
  if (!one_each_) return std::vector<MappedDim>(count, dims_.front());
  TORCH_CHECK_VALUE(dims_.size() == count, "vmap: ", option, " has ", dims_.size(), " entries, but there are ", count,
                    " ", values);
  return dims_;
}

}  // namespace graft
