#include "vmap/vmap.h"

#include <ATen/Context.h>
#include <ATen/ops/cat.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>
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
  tree = tree.with_values(std::move(values), std::move(batch_size));
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

/// Calls `visit(tensor, place, dim)` for every mapped tensor of a part whose dims are not batch dims.
void visit_mapped(const TreePart& part, const PartDims& dims,
                  absl::FunctionRef<void(const Tensor&, const TensorPlace&, int64_t dim)> visit) {
  std::size_t next = 0;
  visit_tensors(part, [&](const Tensor& tensor, const TensorPlace& place) {
    const MappedDim& dim = dims.of_leaves.empty() ? dims.dim : dims.of_leaves[next++];
    if (dim) visit(tensor, place, *dim);
  });
}

void add_sizes(const TreePart& part, const PartDims& dims, std::size_t position, MappedSizes& sizes) {
  const TensorDict* const tree = with_batch_dims(part);
  if (tree != nullptr) {
    if (dims.dim) add_batch_size(*tree, *dims.dim, argument_name(position) + part.path, sizes);
    return;
  }
  visit_mapped(part, dims, [&](const Tensor& tensor, const TensorPlace& place, int64_t dim) {
    add_tensor_size(
        tensor, dim, [&] { return place.describe(argument_name(position)); }, sizes);
  });
}

/// Returns the dims of a part of a value with these dims.
PartDims dims_of(const TreePart& part, const MappedDims& dims, const char* option) {
  const MappedDims& given = dims.below(part.path, option);
  if (const MappedDim* const dim = given.one()) return {*dim, {}};
  const TensorDict* const* const tree = std::get_if<TensorDict*>(&part.value);
  TORCH_CHECK_VALUE(tree != nullptr, "vmap: ", option, " has several dims for one tensor, expected one");
  TORCH_CHECK_VALUE((*tree)->batch_dims() == 0, "vmap: ", option,
                    " has dims for the leaves of a TensorDict with batch dims, expected one of these dims");
  PartDims of_part;
  for (const auto& [path, leaf] : (*tree)->leaves()) {
    const MappedDim* const dim = given.below(path, option).one();
    TORCH_CHECK_VALUE(dim != nullptr, "vmap: ", option, " has several dims for leaf \"", path, "\", expected one");
    of_part.of_leaves.push_back(*dim);
  }
  return of_part;
}

/// Returns the dims of every part of a value with these dims, one for one.
std::vector<PartDims> dims_of_parts(const std::vector<TreePart>& parts, const MappedDims& dims, const char* option) {
  std::vector<PartDims> of_parts;
  of_parts.reserve(parts.size());
  for (const TreePart& part : parts) of_parts.push_back(dims_of(part, dims, option));
  if (dims.one() != nullptr) return of_parts;

  std::vector<std::string> paths;
  for (const TreePart& part : parts) {
    const std::size_t before = paths.size();
    visit_tensors(part, [&](const Tensor&, const TensorPlace& place) {
      paths.push_back(place.leaf == nullptr ? part.path : part.path + "." + *place.leaf);
    });
    if (paths.size() == before) paths.push_back(part.path);  // a TensorDict without leaves is not nothing
  }
  dims.check_places({paths.begin(), paths.end()}, option);
  return of_parts;
}

/// Replaces every mapped tensor of a part by `change(tensor, dim)`, dim not negative, which changes dim `dim` alone,
/// and the batch size that has this dim by `change_batch(batch_size, dim)`.
void change_mapped(const TreePart& part, const PartDims& dims,
                   absl::FunctionRef<Tensor(const Tensor&, int64_t dim)> change,
                   absl::FunctionRef<void(std::vector<int64_t>& batch_size, int64_t dim)> change_batch) {
  TensorDict* const tree = with_batch_dims(part);
  if (tree != nullptr && dims.dim) {
    const int64_t batch_dim = from_start(*dims.dim, tree->batch_dims());
    std::vector<int64_t> batch_size = tree->batch_size();
    change_batch(batch_size, batch_dim);
    replace_values(
        *tree, [&](const Tensor& tensor) { return change(tensor, batch_dim); }, std::move(batch_size));
    return;
  }
  std::size_t next = 0;
  replace_tensors(part, [&](const Tensor& tensor) {
    const MappedDim& dim = dims.of_leaves.empty() ? dims.dim : dims.of_leaves[next++];
    return dim ? change(tensor, from_start(*dim, tensor.dim())) : tensor;
  });
}

/// Takes the tensors of `part` into the level, without their mapped dims.
void enter(const VmapLevel& level, const TreePart& part, const PartDims& dims) {
  change_mapped(
      part, dims, [&](const Tensor& tensor, int64_t dim) { return level.batch(tensor, dim); },
      [](std::vector<int64_t>& batch_size, int64_t dim) { batch_size.erase(batch_size.begin() + dim); });
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

void leave_part(const VmapLevel& level, const TreePart& part, const PartDims& dims, std::size_t position) {
  TORCH_CHECK_VALUE(dims.of_leaves.empty(),
                    "vmap: out_dims has dims for the leaves of a TensorDict, expected one for all");
  if (!dims.dim) {
    check_unmapped(level, part, position);
    return;
  }
  check_out_dim(part, *dims.dim, position);
  TensorDict* const* tree = std::get_if<TensorDict*>(&part.value);
  if (tree != nullptr && (*dims.dim == 0 || (*tree)->batch_dims() > 0)) {
    leave_batch(level, **tree, *dims.dim);
  } else {
    leave_tensors(level, part, *dims.dim);
  }
}

// --- Chunks

/// Puts `size` samples of the original of a part in its place, from `begin` on.
void put_samples(const TreePart& part, const PartDims& dims, const std::variant<Tensor, TensorDict>& original,
                 int64_t begin, int64_t size) {
  if (Tensor* const* tensor = std::get_if<Tensor*>(&part.value)) {
    **tensor = std::get<Tensor>(original);
  } else {
    *std::get<TensorDict*>(part.value) = std::get<TensorDict>(original);
  }
  change_mapped(
      part, dims, [&](const Tensor& tensor, int64_t dim) { return tensor.narrow(dim, begin, size); },
      [&](std::vector<int64_t>& batch_size, int64_t dim) { batch_size[dim] = size; });
}

/// Joins the tensors of one part of each chunk's result along `dim`, in the first.
void join_part(const std::vector<const TreePart*>& chunks, int64_t dim) {
  if (Tensor* const* first = std::get_if<Tensor*>(&chunks.front()->value)) {
    std::vector<Tensor> tensors;
    for (const TreePart* part : chunks) tensors.push_back(*std::get<Tensor*>(part->value));
    **first = at::cat(tensors, dim);
    return;
  }
  TensorDict& tree = *std::get<TensorDict*>(chunks.front()->value);
  const bool is_batch_dim = tree.batch_dims() > 0;
  std::vector<int64_t> batch_size = tree.batch_size();
  const int64_t batch_dim = is_batch_dim ? from_start(dim, tree.batch_dims()) : dim;
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    std::vector<Tensor> tensors;
    for (const TreePart* part : chunks) {
      tensors.push_back(std::get<TensorDict*>(part->value)->at(tree.keys()->path(i)));
    }
    values.push_back(at::cat(tensors, batch_dim));
  }
  if (is_batch_dim) {
    batch_size[batch_dim] = 0;
    for (const TreePart* part : chunks) {
      batch_size[batch_dim] += std::get<TensorDict*>(part->value)->batch_size()[batch_dim];
    }
  }
  tree = tree.with_values(std::move(values), std::move(batch_size));
}

/// Returns the default generators of the processor and of the devices of the arguments, with their states.
std::vector<std::pair<at::Generator, Tensor>> default_generators(const std::vector<TreePart>& arguments) {
  std::vector<at::Device> devices = {at::kCPU};
  for (const TreePart& part : arguments) {
    visit_tensors(part, [&](const Tensor& tensor, const TensorPlace&) {
      const bool is_new = std::find(devices.begin(), devices.end(), tensor.device()) == devices.end();
      if (is_new && tensor.is_cuda()) devices.push_back(tensor.device());
    });
  }
  std::vector<std::pair<at::Generator, Tensor>> generators;
  for (const at::Device& device : devices) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock(generator.mutex());
    const Tensor state = generator.get_state();
    generators.emplace_back(std::move(generator), state);
  }
  return generators;
}

}  // namespace

MappedArguments::MappedArguments(const VmapOptions& options, const ArgumentParts& arguments) {
  TORCH_CHECK_VALUE(options.chunk_size.value_or(1) > 0, "vmap: chunk_size is ", options.chunk_size.value_or(0),
                    ", expected a positive number");
  const std::vector<MappedDims> dims = options.in_dims.for_each(arguments.size(), "in_dims", "arguments");
  MappedSizes sizes;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const MappedDim* const one = dims[i].one();
    TORCH_CHECK_VALUE(one == nullptr || !*one || !arguments[i].empty(), "vmap(in_dims=", one ? one->value_or(0) : 0,
                      "): ", argument_name(i), " holds no tensor, expected std::nullopt as its dim");
    std::vector<PartDims> of_parts = dims_of_parts(arguments[i], dims[i], "in_dims");
    for (std::size_t p = 0; p < of_parts.size(); ++p) {
      add_sizes(arguments[i][p], of_parts[p], i, sizes);
      parts_.push_back(arguments[i][p]);
      dims_.push_back(std::move(of_parts[p]));
    }
  }
  size_ = sizes.only();
}

VmapCall::VmapCall(const VmapOptions& options, const MappedArguments& arguments, int64_t size)
    : level_(size, options.randomness) {
  if (options.fallback == Fallback::kError) no_fallback_.emplace();
  for (std::size_t i = 0; i < arguments.parts().size(); ++i) enter(level_, arguments.parts()[i], arguments.dims()[i]);
}

void VmapCall::leave(const OutDims& out_dims, const ArgumentParts& results) const {
  const std::vector<MappedDims> dims = out_dims.for_each(results.size(), "out_dims", "results");
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::vector<PartDims> of_parts = dims_of_parts(results[i], dims[i], "out_dims");
    for (std::size_t p = 0; p < of_parts.size(); ++p) leave_part(level_, results[i][p], of_parts[p], i);
  }
}

ChunkedCall::ChunkedCall(const VmapOptions& options, const MappedArguments& arguments)
    : options_(options), arguments_(arguments) {
  for (const TreePart& part : arguments.parts()) {
    if (Tensor* const* tensor = std::get_if<Tensor*>(&part.value)) {
      originals_.emplace_back(**tensor);
    } else {
      originals_.emplace_back(*std::get<TensorDict*>(part.value));
    }
  }
  if (options.randomness == Randomness::kSame) generators_ = default_generators(arguments.parts());
}

int64_t ChunkedCall::next() {
  const int64_t size = std::min(*options_.chunk_size, arguments_.size() - begin_);
  if (size == 0) return 0;
  if (begin_ > 0) {
    for (auto& [generator, state] : generators_) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }
  for (std::size_t i = 0; i < originals_.size(); ++i) {
    put_samples(arguments_.parts()[i], arguments_.dims()[i], originals_[i], begin_, size);
  }
  begin_ += size;
  return size;
}

void ChunkedCall::join(const std::vector<ArgumentParts>& results) const {
  const std::vector<MappedDims> dims = options_.out_dims.for_each(results.front().size(), "out_dims", "results");
  for (std::size_t i = 0; i < results.front().size(); ++i) {
    for (std::size_t p = 0; p < results.front()[i].size(); ++p) {
      std::vector<const TreePart*> chunks;
      for (const ArgumentParts& chunk : results) {
        TORCH_CHECK_VALUE(chunk[i].size() == results.front()[i].size(), "vmap: ", result_name(i),
                          " has other parts in some chunks");
        chunks.push_back(&chunk[i][p]);
      }
      if (const MappedDim dim = dims_of(*chunks.front(), dims[i], "out_dims").dim) join_part(chunks, *dim);
    }
  }
}

}  // namespace graft::internal
