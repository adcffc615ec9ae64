#include "functional/internal/call_scope.h"

#include <ATen/ops/alias.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <sstream>

#include "absl/container/flat_hash_map.h"
#include "functional/internal/concurrent_leaves.h"
#include "functional/internal/recorded_graph.h"

namespace graft::internal {
CallScope::CallScope(torch::nn::Module& module, const std::vector<const TensorDict*>& trees, bool concurrent)
    : trees_(trees) {
  TORCH_CHECK_VALUE(!trees.empty(), "functional_call: expected one tree of parameters or several, got none");
  take_in(module, concurrent);
  if (keep_leaves_apart()) take_in(module, concurrent);
  if (!redirects_.empty()) redirect_.emplace(redirects_.pairs(), /*notes_met=*/redirects_.has_doubtful());
  begin_ = recorded_so_far();
}

/// Takes in the leaves of the trees, and what is to be redirected.
void CallScope::take_in(torch::nn::Module& module, bool concurrent) {
  if (concurrent) {
    claim_.emplace(module, ClaimKind::kShared, "functional_call");
    Redirects::Pairs pairs = concurrent_leaves(claim_->plan(), trees_);
    std::erase_if(pairs, [](const auto& pair) { return pair.first.is_same(pair.second); });
    redirects_ = Redirects(std::move(pairs));
    return;
  }
  installation_.reset();
  installation_.emplace(
      module, trees_,
      InstallRules{
          .call = "functional_call", .preserve_flags = false, .tie = true, .redirect = true, .reset_members = true});
  redirects_ = installation_->take_redirects();
}

/// A leaf may be a parameter that is redirected itself, and would be exchanged in its turn. Puts aliases in place of
/// such leaves, and says whether there were any.
bool CallScope::keep_leaves_apart() {
  absl::flat_hash_map<const at::TensorImpl*, at::Tensor> aliases;
  for (const auto& [old_tensor, leaf] : redirects_.pairs()) {
    aliases.emplace(old_tensor.unsafeGetTensorImpl(), at::Tensor());
  }
  const auto is_exchanged = [&](const at::Tensor& leaf) { return aliases.contains(leaf.unsafeGetTensorImpl()); };
  const auto kept = [&](const at::Tensor& leaf) {
    if (!is_exchanged(leaf)) return leaf;
    at::Tensor& alias = aliases[leaf.unsafeGetTensorImpl()];  // one for all uses, so that what is tied stays tied
    if (!alias.defined()) alias = at::alias(leaf);
    return alias;
  };
  if (aliases.empty()) return false;
  const bool clash = std::any_of(trees_.begin(), trees_.end(), [&](const TensorDict* tree) {
    return std::any_of(tree->values().begin(), tree->values().end(), is_exchanged);
  });
  if (!clash) return false;
  for (const TensorDict* tree : trees_) copies_.push_back(tree->map(kept));
  for (std::size_t i = 0; i < trees_.size(); ++i) trees_[i] = &copies_[i];
  return true;
}

at::Tensor CallScope::leaf_for(const at::Tensor& tensor) const {
  return redirect_ && tensor.defined() ? redirect_->leaf_for(tensor) : tensor;
}

void CallScope::note_met() {
  if (!redirects_.has_doubtful()) return;
  installation_->note_met([this](const at::TensorImpl* old_tensor) { return redirect_->was_met(old_tensor); });
}

at::Tensor CallScope::argument(const at::Tensor& tensor) {
  if (!redirect_ || !tensor.defined()) return tensor;
  const at::Tensor kept = redirect_->kept(tensor);
  begin_ = recorded_so_far();
  return kept;
}

std::string CallScope::name_of(const at::Tensor& leaf) const {
  for (const TensorDict* tree : trees_) {
    for (std::size_t i = 0; i < tree->size(); ++i) {
      if (tree->values()[i].is_same(leaf)) return "\"" + tree->keys()->path(i) + "\"";
    }
  }
  return "a parameter of the call around this one";
}

void CallScope::check_gradients(const std::vector<TreePart>& results) const {
  if (!redirect_) return;
  std::ostringstream problems;
  for (const auto& [old_tensor, leaf] : redirects_.needed()) {
    if (leaf.requires_grad() && !old_tensor.requires_grad()) {
      problems << "\n  " << name_of(leaf)
               << ": the module's own tensor does not require grad, so nothing can be found out; set its requires_grad";
    }
  }
  std::vector<at::Tensor> tensors;
  for (const TreePart& part : results) {
    visit_tensors(part, [&](const at::Tensor& tensor, const TensorPlace&) { tensors.push_back(tensor); });
  }
  for (const at::Tensor& tensor : accumulated_from(tensors, begin_)) {
    if (redirect_->exchanges(tensor)) {
      problems << "\n  " << name_of(redirect_->leaf_for(tensor))
               << ": the gradient goes to the module's own tensor; a torch::autograd::Function was applied to it";
    }
  }
  TORCH_CHECK(
      problems.str().empty(), "functional_call: gradients that the leaves do not get:", problems.str(),
      "\nA call that is not concurrent lets them through, if GRAFT_SLOTS lists the members that forward reads.");
}

}  // namespace graft::internal
