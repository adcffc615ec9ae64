#include "vmap/vmap.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "tensordict/ties.h"

namespace graft::internal {
namespace {

std::string argument_name(std::size_t position) { return "argument " + std::to_string(position); }
std::string result_name(std::size_t position) { return "result " + std::to_string(position); }

bool in_range(int64_t dim, int64_t rank) { return -rank <= dim && dim < rank; }
int64_t from_start(int64_t dim, int64_t rank) { return dim < 0 ? dim + rank : dim; }

/// Returns the TensorDict of `part` if its batch dims are the ones to map over or into, else nullptr.
TensorDict* with_batch_dims(const TreePart& part) {
  TensorDict* const* tree = std::get_if<TensorDict*>(&part.value);
  return tree != nullptr && (*tree)->batch_dims() > 0 ? *tree : nullptr;
}

/// Replaces the tensors of `tree` by `change(tensor)`, and its batch size. Names of one tensor stay names of one.
void replace_values(TensorDict& tree, absl::FunctionRef<Tensor(const Tensor&)> change,
                    std::vector<int64_t> batch_size) {
  const std::vector<std::size_t> ties = tie_positions(tree.values());
  std::vector<Tensor> values;
  values.reserve(tree.size());
  for (std::size_t i = 0; i < tree.size(); ++i) {
    values.push_back(ties[i] < i ? values[ties[i]] : change(tree.values()[i]));
  }
  tree.set_values(std::move(values), std::move(batch_size));
}

// --- Arguments

/// The sizes of the mapped dims that were seen, each with one example.
class MappedSizes {
 public:
  void add(int64_t size, absl::FunctionRef<std::string()> example) {
    const auto seen =
        std::find_if(sizes_.begin(), sizes_.end(), [&](const auto& entry) { return entry.first == size; });
    if (seen == sizes_.end()) sizes_.emplace_back(size, example());
  }

  int64_t only() const {
    TORCH_CHECK_VALUE(!sizes_.empty(),
                      "vmap: no argument is mapped, expected a dim for at "
                      "least one in in_dims");
    if (sizes_.size() > 1) throw_differing();
    return sizes_.front().first;
  }

 private:
  [[noreturn]] void throw_differing() const {
    std::ostringstream text;
    for (const auto& [size, example] : sizes_) text << "\n  " << size << ": " << example;
    C10_THROW_ERROR(ValueError, "vmap: the mapped dims have different sizes:" + text.str());
  }

  std::vector<std::pair<int64_t, std::string>> sizes_;
};

void add_tensor_size(const Tensor& tensor, int64_t dim, absl::FunctionRef<std::string()> name, MappedSizes& sizes) {
  TORCH_CHECK_VALUE(tensor.defined(), "vmap(in_dims=", dim, "): ", name(), " is undefined");
  TORCH_CHECK_VALUE(in_range(dim, tensor.dim()), "vmap(in_dims=", dim, "): ", name(), " has shape ", tensor.sizes(),
                    ", expected ", -tensor.dim(), " <= dim < ", tensor.dim());
  sizes.add(tensor.size(dim), name);
}

void add_batch_size(const TensorDict& tree, int64_t dim, const std::string& name, MappedSizes& sizes) {
  const int64_t rank = tree.batch_dims();
  TORCH_CHECK_VALUE(in_range(dim, rank), "vmap(in_dims=", dim, "): ", name, " has batch size ",
                    at::IntArrayRef(tree.batch_size()), ", expected ", -rank, " <= dim < ", rank);
  sizes.add(tree.batch_size()[from_start(dim, rank)], [&] { return "the batch size of " + name; });
}

void add_sizes(const TreePart& part, int64_t dim, std::size_t position, MappedSizes& sizes) {
  if (const TensorDict* tree = with_batch_dims(part)) {
    add_batch_size(*tree, dim, argument_name(position) + part.path, sizes);
    return;
  }
  visit_tensors(part, [&](const Tensor& tensor, const TensorPlace& place) {
    add_tensor_size(
        tensor, dim, [&] { return place.describe(argument_name(position)); }, sizes);
  });
}

Mapping check_mapping(const InDims& in_dims, const ArgumentParts& arguments) {
  Mapping mapping{in_dims.for_each(arguments.size(), "in_dims", "arguments"), 0};
  MappedSizes sizes;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const MappedDim& dim = mapping.dims[i];
    if (!dim) continue;
    TORCH_CHECK_VALUE(!arguments[i].empty(), "vmap(in_dims=", *dim, "): ", argument_name(i),
                      " holds no tensor, expected std::nullopt as its dim");
    for (const TreePart& part : arguments[i]) add_sizes(part, *dim, i, sizes);
  }
  mapping.size = sizes.only();
  return mapping;
}

/// Takes the tensors of `part` into the level, without dim `dim`.
void enter(const VmapLevel& level, const TreePart& part, int64_t dim) {
  TensorDict* tree = with_batch_dims(part);
  if (tree == nullptr) {
    replace_tensors(part, [&](const Tensor& tensor) { return level.batch(tensor, from_start(dim, tensor.dim())); });
    return;
  }
  std::vector<int64_t> batch_size = tree->batch_size();
  const int64_t batch_dim = from_start(dim, tree->batch_dims());
  batch_size.erase(batch_size.begin() + batch_dim);
  replace_values(
      *tree, [&](const Tensor& tensor) { return level.batch(tensor, batch_dim); }, std::move(batch_size));
}

// --- Results

void check_unmapped(const VmapLevel& level, const TreePart& part, std::size_t position) {
  visit_tensors(part, [&](const Tensor& tensor, const TensorPlace& place) {
    TORCH_CHECK_VALUE(!level.is_batched(tensor), "vmap(out_dims=nullopt): ", place.describe(result_name(position)),
                      " depends on mapped arguments, expected a dim for it");
  });
}

void check_out_dim(const TreePart& part, int64_t dim, std::size_t position) {
  if (const TensorDict* tree = with_batch_dims(part)) {
    const int64_t rank = tree->batch_dims() + 1;
    TORCH_CHECK_VALUE(in_range(dim, rank), "vmap(out_dims=", dim, "): ", result_name(position), part.path,
                      " has batch size ", at::IntArrayRef(tree->batch_size()), " without the mapped dim, expected ",
                      -rank, " <= dim < ", rank);
    return;
  }
  visit_tensors(part, [&](const Tensor& tensor, const TensorPlace& place) {
    TORCH_CHECK_VALUE(tensor.defined(), "vmap: ", place.describe(result_name(position)), " is undefined");
    const int64_t rank = tensor.dim() + 1;
    TORCH_CHECK_VALUE(in_range(dim, rank), "vmap(out_dims=", dim, "): ", place.describe(result_name(position)),
                      " has shape ", tensor.sizes(), " without the mapped dim, expected ", -rank, " <= dim < ", rank);
  });
}

/// Takes the tensors of `part` out of the level, with the mapped dim as dim `dim` of each.
void leave_tensors(const VmapLevel& level, const TreePart& part, int64_t dim) {
  replace_tensors(part, [&](const Tensor& tensor) { return level.unbatch(tensor, from_start(dim, tensor.dim() + 1)); });
}

/// Takes the leaves of `tree` out of the level, with the mapped dim as batch dim `dim`.
void leave_batch(const VmapLevel& level, TensorDict& tree, int64_t dim) {
  std::vector<int64_t> batch_size = tree.batch_size();
  const int64_t batch_dim = from_start(dim, tree.batch_dims() + 1);
  batch_size.insert(batch_size.begin() + batch_dim, level.batch_size());
  replace_values(
      tree, [&](const Tensor& tensor) { return level.unbatch(tensor, batch_dim); }, std::move(batch_size));
}

void leave_part(const VmapLevel& level, const TreePart& part, const MappedDim& dim, std::size_t position) {
  if (!dim) {
    check_unmapped(level, part, position);
    return;
  }
  check_out_dim(part, *dim, position);
  TensorDict* const* tree = std::get_if<TensorDict*>(&part.value);
  if (tree != nullptr && (*dim == 0 || (*tree)->batch_dims() > 0)) {
    leave_batch(level, **tree, *dim);
  } else {
    leave_tensors(level, part, *dim);
  }
}

}  // namespace

VmapCall::VmapCall(const VmapOptions& options, const ArgumentParts& arguments)
    : VmapCall(options.randomness, arguments, check_mapping(options.in_dims, arguments)) {}

VmapCall::VmapCall(Randomness randomness, const ArgumentParts& arguments, const Mapping& mapping)
    : level_(mapping.size, randomness) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!mapping.dims[i]) continue;
    for (const TreePart& part : arguments[i]) enter(level_, part, *mapping.dims[i]);
  }
}

void VmapCall::leave(const OutDims& out_dims, const ArgumentParts& results) const {
  const std::vector<MappedDim> dims = out_dims.for_each(results.size(), "out_dims", "results");
  for (std::size_t i = 0; i < results.size(); ++i) {
    for (const TreePart& part : results[i]) leave_part(level_, part, dims[i], i);
  }
}

}  // namespace graft::internal
