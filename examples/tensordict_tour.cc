// The code of docs/tensordict.md, as one program that checks what it gets.
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "tensordict/archive.h"
#include "tensordict/binary.h"
#include "tensordict/clip.h"
#include "tensordict/compare.h"
#include "tensordict/consolidate.h"
#include "tensordict/copy.h"
#include "tensordict/edit.h"
#include "tensordict/global_reduce.h"
#include "tensordict/indexing.h"
#include "tensordict/join.h"
#include "tensordict/lazy_stack.h"
#include "tensordict/loss.h"
#include "tensordict/map.h"
#include "tensordict/match_keys.h"
#include "tensordict/memmap.h"
#include "tensordict/pack.h"
#include "tensordict/partition.h"
#include "tensordict/pointwise.h"
#include "tensordict/print.h"
#include "tensordict/reduce.h"
#include "tensordict/shape.h"
#include "tensordict/structure.h"
#include "tensordict/summary.h"
#include "tensordict/tensordict.h"
#include "tensordict/unary.h"
#include "tensordict/update.h"
#include "vmap/vmap.h"

using namespace graft;  // NOLINT: as in the page
using torch::Tensor;
using torch::indexing::Slice;

namespace {

void check(const std::string& what, bool holds) {
  std::cout << what << ": " << (holds ? "as the page says" : "DIFFERENT") << '\n';
  if (!holds) std::exit(1);
}

TensorDict leaves() {
  TensorDict td({{"obs", torch::zeros({4, 3})}, {"next.obs", torch::ones({4, 3})}}, /*batch_size=*/{4});
  td.set("reward", torch::ones({4}));          // adds a leaf, or replaces one
  const Tensor obs = td["next.obs"];           // throws if there is none; td.find(path) returns nullptr
  const TensorDict next = td.subtree("next");  // its path is "obs"
  for (const auto& [path, leaf] : td.leaves()) std::cout << path << leaf.sizes() << '\n';
  std::cout << td << '\n';

  std::ostringstream printed;
  printed << td;
  check("print", printed.str() ==
                     "TensorDict: 3 leaves, batch size [4], 112 B\n"
                     "  obs       Float [4, 3]  48 B\n"
                     "  next.obs  Float [4, 3]  48 B\n"
                     "  reward    Float [4]  16 B");
  check("subtree", next["obs"].is_same(obs));
  return td;
}

void copies(TensorDict td) {
  TensorDict copy = td;               // shares every tensor
  copy.erase("reward");               // td still has it
  copy["obs"].fill_(1);               // td sees it
  const TensorDict deep = clone(td);  // shares nothing

  check("copies", td.contains("reward") && td["obs"].sum().item<float>() == 12);
  check("deep copies", !deep["obs"].is_alias_of(td["obs"]));
}

void keys(TensorDict td) {
  const TensorDict head = select(td, {"next", "reward"});  // a leaf, or all of a part
  const TensorDict rest = exclude(td, {"next"});
  const auto is_obs = [](const std::string& path, const Tensor&) { return path.find("obs") != std::string::npos; };
  const auto [observations, others] = partition(td, is_obs);
  const TensorDict whole = merge({observations, others});
  update(td, TensorDict({{"done", torch::zeros({4})}}, {4}));  // handles: replaces and adds
  update_(td, TensorDict({{"reward", torch::full({}, 2.)}}));  // data: copied into the leaf that is there

  check("parts by key", head.size() == 2 && rest.size() == 2 && whole.size() == 3);
  check("updates", td.size() == 4 && td["reward"].sum().item<float>() == 8);
}

void batch_dims(TensorDict td) {
  const TensorDict two = index(td, {Slice(0, 2)});  // views, as a tensor's
  const TensorDict chosen = index(td, {torch::tensor({3, 0})});
  index_put_(td, {0}, index(td, {1}));  // td[0] = td[1]
  const TensorDict square = view(td, {2, 2});
  const TensorDict both = stack({td, td});  // [2, 4, ...]
  const std::vector<TensorDict> back = unbind(both);
  const std::vector<TensorDict> halves = split(td, 2);

  check("indices", two["obs"].is_alias_of(td["obs"]) && chosen.batch_size() == std::vector<int64_t>{2});
  check("shapes", square["reward"].dim() == 2 && both.batch_dims() == 2);
  check("joins", equal(back[1], td) && halves.size() == 2);
}

void parts_with_dims() {
  TensorDict rollout({{"id", torch::arange(4)}}, {4});
  rollout.set("steps", TensorDict({{"action", torch::zeros({4, 10, 2})}}, {4, 10}));
  const TensorDict first = index(rollout, {0});  // batch size [], of "steps" [10]

  rollout.set("discount", torch::tensor(0.99).expand({4}));  // one number, seen four times

  edit(rollout, viewed({2, 2}), [](TensorDict& square) {  // of batch size [2, 2]
    square.set("row", torch::arange(2).view({2, 1}).expand({2, 2}));
  });  // rollout has a leaf "row" of shape [4]

  const auto discounted = [](const TensorDict& sample) { return sample["id"] * sample["discount"]; };
  check("leaves for all samples", torch::allclose(vmap(discounted)(rollout), torch::arange(4) * 0.99));
  check("edits", torch::equal(rollout["row"], torch::tensor({0, 0, 1, 1})));
  check("batch dims of parts", first.batch_dims() == 0 && first.batch_size("steps") == std::vector<int64_t>{10});
}

TensorDict arithmetic(const TensorDict& td) {
  const TensorDict params({{"w", torch::rand({3, 2})}, {"b", torch::rand({2})}});
  const TensorDict gradient = map(params, [](const Tensor& leaf) { return leaf * 2; });
  const TensorDict stepped = params - 0.1 * gradient;
  const TensorDict weighted = td * torch::tensor({1., 2., 3., 4.});  // a factor for each sample
  const TensorDict large = gt(abs(stepped), 0.5);                    // a tree of bools
  const TensorDict means = mean(td, 0);                              // over a batch dim
  const Tensor norm = global_norm(gradient);                         // one number of all leaves
  const TensorDict clipped = clip_by_global_norm(gradient, 1.);

  const TensorDict frozen({{"w", torch::ones({3, 2})}});
  const auto [ours, theirs] = fill_missing(params, frozen, 0);  // keep_common drops what only one has
  const TensorDict total = ours + theirs;
  const TensorDict losses = mse_loss(stepped, params);  // a number for each leaf
  map_(total, [](const Tensor& leaf) { return leaf.clamp_max(1); });

  check("steps", allclose(stepped, map(params, [](const Tensor& leaf) { return leaf * 0.8; })));
  check("factors", weighted["next.obs"].sum().item<float>() == 30 && means["next.obs"].numel() == 3);
  check("comparisons", torch::equal(large["w"], stepped["w"] > 0.5));
  check("keys of one tree", torch::equal(total["w"], torch::ones({3, 2})) && torch::equal(total["b"], params["b"]));
  check("losses", torch::allclose(losses["b"], (params["b"] * 0.2).square().mean()));
  check("clipping", norm.item<float>() <= 1 || global_norm(clipped).item<float>() < 1.001);
  return params;
}

void other_forms(const TensorDict& td, const TensorDict& params) {
  const Tensor flat = pack(params);  // [8], for a solver that knows vectors
  const TensorDict again = unpack(flat * 2, params);
  const Consolidated state(params);                                          // all leaves in one buffer of bytes
  const Consolidated snapshot = state.clone();                               // so a copy is one operation
  LazyStack episodes({index(td, {Slice(0, 2)}), index(td, {Slice(2, 4)})});  // seen as one, kept as they are
  const Tensor rewards = episodes.at("reward");                              // stacked at each read

  check("vectors", flat.numel() == 8 && allclose(again, 2 * params));
  check("buffers", equal(snapshot.tree(), params));
  check("lazy stacks", rewards.sizes() == std::vector<int64_t>{2, 2});
}

void files(const TensorDict& td, const std::string& folder) {
  save(td, folder + "/td.pt");  // one file; Python's torch.load reads it
  const TensorDict loaded = load(folder + "/td.pt");
  memmap(td, folder + "/td");                             // a folder with one file a leaf
  const TensorDict mapped = load_memmap(folder + "/td");  // not read until it is used

  check("files", equal(loaded, td) && equal(mapped, td));
}

}  // namespace

int main() {
  const TensorDict td = leaves();
  copies(clone(td));
  keys(clone(td));
  batch_dims(clone(td));
  parts_with_dims();
  const TensorDict params = arithmetic(td);
  other_forms(td, params);
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "graft_tensordict_tour";
  std::filesystem::create_directories(folder);
  files(td, folder.string());
  std::filesystem::remove_all(folder);
  std::cout << summary(params);
}
