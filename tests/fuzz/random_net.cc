#include "tests/fuzz/random_net.h"

#include <torch/torch.h>

#include <array>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "functional/internal/module_registry.h"
#include "functional/slots.h"

namespace graft::testing {
namespace {

namespace nn = torch::nn;

constexpr int64_t kWidth = 3;
constexpr int64_t kSamples = 4;

/// The vectors of weights that a recurrent module keeps out of sight.
template <typename Impl>
struct FlatWeights : nn::detail::RNNImplBase<Impl> {
  static constexpr auto kPointer = &FlatWeights::flat_weights_;
};

/// A class that Graft knows nothing about.
struct RawImpl : nn::Module {
  explicit RawImpl(const Tensor& parameter) {
    w = register_parameter("w", parameter);
    shift = register_buffer("shift", torch::rand({kWidth}));
    none = register_parameter("none", Tensor(), /*requires_grad=*/false);
  }
  Tensor forward(const Tensor& x) { return x * w + shift; }
  Tensor w, shift, none;
};

}  // namespace

/// A class with GRAFT_SLOTS, as is its base.
struct ScaledImpl : nn::Module {
  explicit ScaledImpl(const Tensor& parameter) { scale_ = register_parameter("scale", parameter); }
  Tensor scale_;
};

struct AnnotatedImpl : ScaledImpl {
  explicit AnnotatedImpl(const Tensor& parameter) : ScaledImpl(parameter) {
    for (int i = 0; i < 2; ++i) {
      layers_.push_back(register_parameter("v" + std::to_string(i), torch::rand({kWidth, kWidth})));
      pair_[i] = register_buffer("p" + std::to_string(i), torch::rand({kWidth}));
    }
    shift_ = register_buffer("shift", torch::rand({kWidth}));
    bias_ = register_parameter("bias", Tensor(), /*requires_grad=*/false);
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = torch::tanh((x * scale_ + *shift_).matmul(layers_[0]) * pair_[0]).matmul(layers_[1]) - pair_[1];
    return bias_.defined() ? y + bias_ : y;
  }
  std::vector<Tensor> layers_;
  std::array<Tensor, 2> pair_;
  std::optional<Tensor> shift_;
  Tensor bias_;
};

}  // namespace graft::testing

GRAFT_SLOTS(graft::testing::ScaledImpl, scale_)
GRAFT_SLOTS(graft::testing::AnnotatedImpl, layers_, pair_, shift_, bias_)

namespace graft::testing {

Tensor Net::forward(const Tensor& x) {
  if (const auto hook = std::exchange(at_start, nullptr)) hook();
  Tensor y = x;
  for (const Step& step : steps) y = torch::tanh(step(y));
  if (const auto hook = std::exchange(at_end, nullptr)) hook();
  return y;
}

RandomNet::RandomNet(uint64_t seed, Ties ties) : random_(seed), draws_ties_(ties == Ties::kDrawn) {
  torch::manual_seed(seed);
  root_ = make_net(/*depth=*/0);
  const bool in_double = random_.chance(30);
  root_->to(in_double ? torch::kDouble : torch::kFloat);
  if (random_.chance(60)) root_->eval();
  x_ = torch::rand({kSamples, kWidth}, in_double ? torch::kDouble : torch::kFloat);
  for (const auto& module : root_->modules()) modules_.push_back(module.get());
  if (draws_ties_) {
    tie();
    set_values();
  }
}

std::shared_ptr<Net> RandomNet::make_net(int depth) {
  auto net = std::make_shared<Net>();
  const int64_t count = 1 + random_.below(depth == 0 ? 4 : 2);
  for (int64_t i = 0; i < count; ++i) {
    const bool shares = !blocks_.empty() && random_.chance(12);
    has_ties_ |= shares;
    const Block child = shares ? Block(random_.pick(blocks_)) : make_block(depth);
    const std::string name =
        random_.chance(20) ? "a_name_that_is_kept_on_the_heap" + std::to_string(i) : "m" + std::to_string(i);
    net->register_module(name, child.module);
    net->steps.push_back(child.step);
    blocks_.push_back(child);
  }
  if (random_.chance(10)) net->register_buffer("unused", torch::rand({2}));
  nets_.push_back(net.get());
  return net;
}

RandomNet::Block RandomNet::make_block(int depth) {
  switch (random_.below(12)) {
    case 0:
    case 1: {
      const auto options = nn::LinearOptions(kWidth, kWidth).bias(random_.chance(60));
      auto linear = std::make_shared<nn::LinearImpl>(options);
      return block(with_members(linear, std::pair("weight", &linear->weight), std::pair("bias", &linear->bias)),
                   [](nn::LinearImpl& module, const Tensor& x) { return module.forward(x); });
    }
    case 2: {
      auto module = std::make_shared<nn::Conv1dImpl>(nn::Conv1dOptions(kWidth, kWidth, 1).bias(random_.chance(60)));
      return block(with_members(module, std::pair("weight", &module->weight), std::pair("bias", &module->bias)),
                   [](nn::Conv1dImpl& conv, const Tensor& x) { return conv.forward(x.unsqueeze(-1)).squeeze(-1); });
    }
    case 3: {
      auto module = std::make_shared<nn::PReLUImpl>(nn::PReLUOptions().num_parameters(kWidth));
      return block(with_members(module, std::pair("weight", &module->weight)),
                   [](nn::PReLUImpl& prelu, const Tensor& x) { return prelu.forward(x - 0.5); });
    }
    case 4:
    case 5:
      return make_normalisation();
    case 6:
    case 7:
      return make_recurrent();
    case 8:
    case 9:
      return make_user_class();
    default:
      return make_container(depth);
  }
}

template <typename Impl, typename Call>
RandomNet::Block RandomNet::block(std::shared_ptr<Impl> module, Call call) {
  return {module, [raw = module.get(), call](const Tensor& x) { return call(*raw, x); }};
}

RandomNet::Block RandomNet::make_normalisation() {
  switch (random_.below(3)) {
    case 0: {
      auto norm = std::make_shared<nn::BatchNorm1dImpl>(
          nn::BatchNorm1dOptions(kWidth).affine(random_.chance(70)).track_running_stats(random_.chance(70)));
      return block(
          with_members(norm, std::pair("weight", &norm->weight), std::pair("bias", &norm->bias),
                       std::pair("running_mean", &norm->running_mean), std::pair("running_var", &norm->running_var),
                       std::pair("num_batches_tracked", &norm->num_batches_tracked)),
          [](nn::BatchNorm1dImpl& module, const Tensor& x) { return module.forward(x); });
    }
    case 1: {
      auto norm =
          std::make_shared<nn::LayerNormImpl>(nn::LayerNormOptions({kWidth}).elementwise_affine(random_.chance(70)));
      return block(with_members(norm, std::pair("weight", &norm->weight), std::pair("bias", &norm->bias)),
                   [](nn::LayerNormImpl& module, const Tensor& x) { return module.forward(x); });
    }
    default: {
      auto norm = std::make_shared<nn::GroupNormImpl>(nn::GroupNormOptions(1, kWidth).affine(random_.chance(70)));
      return block(with_members(norm, std::pair("weight", &norm->weight), std::pair("bias", &norm->bias)),
                   [](nn::GroupNormImpl& module, const Tensor& x) { return module.forward(x); });
    }
  }
}

RandomNet::Block RandomNet::make_recurrent() {
  const auto rnn_block = [&]<typename Impl>(std::shared_ptr<Impl> rnn) {
    auto& weights = static_cast<nn::detail::RNNImplBase<Impl>&>(*rnn).*FlatWeights<Impl>::kPointer;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      add_cell(*rnn, "flat_weights_", [&weights, i] { return i < weights.size() ? &weights[i] : nullptr; });
    }
    return block(rnn,
                 [](Impl& module, const Tensor& x) { return std::get<0>(module.forward(x.unsqueeze(0))).squeeze(0); });
  };
  const int64_t layers = 1 + random_.below(2);
  const bool bias = random_.chance(60);
  switch (random_.below(4)) {
    case 0:
      return rnn_block(std::make_shared<nn::LSTMImpl>(nn::LSTMOptions(kWidth, kWidth).num_layers(layers).bias(bias)));
    case 1:
      return rnn_block(std::make_shared<nn::GRUImpl>(nn::GRUOptions(kWidth, kWidth).num_layers(layers).bias(bias)));
    case 2:
      return rnn_block(std::make_shared<nn::RNNImpl>(nn::RNNOptions(kWidth, kWidth).num_layers(layers).bias(bias)));
    default: {
      auto cell = std::make_shared<nn::GRUCellImpl>(nn::GRUCellOptions(kWidth, kWidth).bias(bias));
      return block(
          with_members(cell, std::pair("weight_ih", &cell->weight_ih), std::pair("weight_hh", &cell->weight_hh),
                       std::pair("bias_ih", &cell->bias_ih), std::pair("bias_hh", &cell->bias_hh)),
          [](nn::GRUCellImpl& module, const Tensor& x) { return module.forward(x); });
    }
  }
}

RandomNet::Block RandomNet::make_user_class() {
  switch (random_.below(4)) {
    case 0: {
      auto raw = std::make_shared<RawImpl>(vector_parameter());
      add_cell(
          *raw, "w", [raw = raw.get()] { return &raw->w; }, Cell::Kind::kPrivate);
      add_cell(
          *raw, "shift", [raw = raw.get()] { return &raw->shift; }, Cell::Kind::kPrivate);
      return block(raw, [](RawImpl& module, const Tensor& x) { return module.forward(x); });
    }
    case 1: {
      auto list = std::make_shared<nn::ParameterListImpl>();
      for (int i = 0; i < 2; ++i) {
        list->append(vector_parameter());
        const auto find = [list = list.get(), name = std::to_string(i)]() -> Tensor* {
          for (auto& item : *list) {
            if (item.key() == name) return &item.value();
          }
          return nullptr;
        };
        add_cell(*list, std::to_string(i), find, Cell::Kind::kRegistry);
      }
      return block(list, [](nn::ParameterListImpl& module, const Tensor& x) { return x * module[0] - module[1]; });
    }
    case 2: {
      auto dict = std::make_shared<nn::ParameterDictImpl>();
      for (const std::string name : {"scale", "shift"}) {
        dict->insert(name, vector_parameter());
        const auto find = [dict = dict.get(), name] { return dict->contains(name) ? &dict->get(name) : nullptr; };
        add_cell(*dict, name, find, Cell::Kind::kRegistry);
      }
      return block(dict, [](nn::ParameterDictImpl& module, const Tensor& x) {
        return x * module.get("scale") - module.get("shift");
      });
    }
    default: {
      auto annotated = std::make_shared<AnnotatedImpl>(vector_parameter());
      AnnotatedImpl* const raw = annotated.get();
      add_cell(*raw, "scale_", [raw] { return &raw->scale_; });
      for (int i = 0; i < 2; ++i) {
        add_cell(*raw, "layers_", [raw, i] { return &raw->layers_[i]; });
        add_cell(*raw, "pair_", [raw, i] { return &raw->pair_[i]; });
      }
      add_cell(*raw, "shift_", [raw] { return &*raw->shift_; });
      add_cell(*raw, "bias_", [raw] { return &raw->bias_; });
      return block(annotated, [](AnnotatedImpl& module, const Tensor& x) { return module.forward(x); });
    }
  }
}

RandomNet::Block RandomNet::make_container(int depth) {
  if (depth == 2) return make_normalisation();
  switch (random_.below(3)) {
    case 0: {
      auto linear = std::make_shared<nn::LinearImpl>(kWidth, kWidth);
      auto norm = std::make_shared<nn::LayerNormImpl>(nn::LayerNormOptions({kWidth}));
      with_members(linear, std::pair("weight", &linear->weight), std::pair("bias", &linear->bias));
      with_members(norm, std::pair("weight", &norm->weight), std::pair("bias", &norm->bias));
      auto sequence = std::make_shared<nn::SequentialImpl>();
      sequence->push_back(linear);
      sequence->push_back(nn::Sigmoid());
      sequence->push_back(norm);
      return block(sequence, [](nn::SequentialImpl& module, const Tensor& x) { return module.forward(x); });
    }
    case 1: {
      auto list = std::make_shared<nn::ModuleListImpl>();
      std::vector<Net::Step> steps;
      for (int i = 0; i < 2; ++i) {
        const Block child = make_block(depth + 1);
        list->push_back(child.module);
        steps.push_back(child.step);
      }
      return block(list, [steps](nn::ModuleListImpl&, const Tensor& x) { return steps[1](torch::tanh(steps[0](x))); });
    }
    default:
      return block(make_net(depth + 1), [](Net& module, const Tensor& x) { return module.forward(x); });
  }
}

template <typename Impl, typename... Members>
std::shared_ptr<Impl> RandomNet::with_members(std::shared_ptr<Impl> module, Members... members) {
  (add_cell(*module, members.first, [handle = members.second] { return handle; }), ...);
  return module;
}

/// A new vector, or one that a handle holds already.
Tensor RandomNet::vector_parameter() {
  std::vector<Tensor> held;
  for (const Cell& cell : cells_) {
    if (cell.handle()->defined() && cell.handle()->dim() == 1 && cell.handle()->size(0) == kWidth) {
      held.push_back(*cell.handle());
    }
  }
  const bool is_tied = random_.chance(15) && !held.empty();
  const Tensor found = is_tied ? random_.pick(held) : Tensor();
  if (!is_tied || !draws_ties_) return torch::rand({kWidth});
  has_ties_ = true;
  return found;
}

void RandomNet::add_cell(nn::Module& module, std::string member, std::function<Tensor*()> handle, Cell::Kind kind) {
  cells_.push_back({.module = &module, .member = std::move(member), .handle = std::move(handle), .kind = kind});
}

void RandomNet::tie() {
  if (cells_.empty() || random_.chance(50)) return;
  for (int64_t count = 1 + random_.below(3); count > 0; --count) {
    const Cell& from = random_.pick(cells_);
    tie_two(from, random_.pick(cells_));
  }
}

/// By assignment to the member alone, or to its entry alone, or to both; or makes the member hold what nobody else has.
void RandomNet::tie_two(const Cell& from, const Cell& to) {
  Tensor& source = *from.handle();
  Tensor& target = *to.handle();
  if (&source == &target || !source.defined() || !target.defined() || source.sizes() != target.sizes()) return;
  if (source.scalar_type() != target.scalar_type()) return;
  has_ties_ = true;
  const Tensor old = target;
  const int64_t way = random_.below(10);
  if (way == 0) {
    target = torch::rand_like(old.detach());
    return;
  }
  if (way > 1) target = source;
  if (way > 4) return;
  for (auto* const registry : {&internal::parameter_registry(*to.module), &internal::buffer_registry(*to.module)}) {
    for (auto& item : *registry) {
      if (item.value().is_same(old)) item.value() = source;
    }
  }
}

/// Positive values, as a variance has to be; some parameters are frozen.
void RandomNet::set_values() {
  const torch::NoGradGuard no_grad;
  for (nn::Module* const module : modules_) {
    for (auto& item : internal::parameter_registry(*module)) {
      if (!item.value().defined()) continue;
      item.value().uniform_(0.1, 1);
      item.value().set_requires_grad(!random_.chance(15));
    }
    for (auto& item : internal::buffer_registry(*module)) {
      if (item.value().defined() && item.value().is_floating_point()) item.value().uniform_(0.1, 1);
    }
  }
}

}  // namespace graft::testing
