// RNN, LSTM, GRU and their cells under transforms equal LibTorch's own code without.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/functional/rules/set_ups.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft::testing {
namespace {

constexpr int64_t kInput = 2, kHidden = 2, kBatch = 2, kSteps = 3;

/// The four kinds, each by its operators.
struct Kind {
  std::string name;
  int64_t gates;
  bool has_cell;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"lstm", 4, true}, {"gru", 3, false}, {"rnn_tanh", 1, false}, {"rnn_relu", 1, false}};
  return all;
}

struct Shape {
  std::string name;
  bool has_biases = true;
  int64_t layers = 1;
  bool bidirectional = false;
  bool batch_first = false;
  int64_t projection = 0;  ///< of an LSTM; 0 for none
  bool gives_states = true;

  int64_t directions() const { return bidirectional ? 2 : 1; }
  int64_t output() const { return projection > 0 ? projection : kHidden; }
};

Tensors random_states(const Kind& kind, const Shape& shape) {
  const int64_t count = shape.layers * shape.directions();
  Tensors states = {random({count, kBatch, shape.output()})};
  if (kind.has_cell) states.push_back(random({count, kBatch, kHidden}));
  return states;
}

Tensors zero_states(const Kind& kind, const Shape& shape, const Tensor& like) {
  const int64_t count = shape.layers * shape.directions();
  Tensors states = {at::zeros({count, kBatch, shape.output()}, like.scalar_type())};
  if (kind.has_cell) states.push_back(at::zeros({count, kBatch, kHidden}, like.scalar_type()));
  return states;
}

Tensors random_weights(const Kind& kind, const Shape& shape) {
  Tensors weights;
  const int64_t rows = kind.gates * kHidden;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    for (int64_t direction = 0; direction < shape.directions(); ++direction) {
      weights.push_back(random({rows, layer == 0 ? kInput : shape.output() * shape.directions()}));
      weights.push_back(random({rows, shape.output()}));
      if (shape.has_biases) weights.insert(weights.end(), {random({rows}), random({rows})});
      if (shape.projection > 0) weights.push_back(random({shape.projection, kHidden}));
    }
  }
  return weights;
}

/// All results in one row.
Tensor flat(const Tensors& results) {
  Tensors rows;
  for (const Tensor& result : results) rows.push_back(result.reshape({-1}));
  return at::cat(rows);
}

Tensor run(const Kind& kind, const Shape& shape, const Tensor& x, const Tensors& states, const Tensors& weights,
           double dropout = 0) {
  const auto call = [&](auto rnn, const auto& hx) {
    return rnn(x, hx, weights, shape.has_biases, shape.layers, dropout, dropout > 0, shape.bidirectional,
               shape.batch_first);
  };
  if (kind.has_cell) {
    const auto [output, hidden, cell] = call([](const auto&... in) { return at::lstm(in...); }, at::TensorList(states));
    return flat({output, hidden, cell});
  }
  const auto [output, hidden] = kind.name == "gru" ? call([](const auto&... in) { return at::gru(in...); }, states[0])
                                : kind.name == "rnn_tanh"
                                    ? call([](const auto&... in) { return at::rnn_tanh(in...); }, states[0])
                                    : call([](const auto&... in) { return at::rnn_relu(in...); }, states[0]);
  return flat({output, hidden});
}

Tensor random_sequence(const Shape& shape) {
  return shape.batch_first ? random({kBatch, kSteps, kInput}) : random({kSteps, kBatch, kInput});
}

/// The case of one kind and shape: the inputs are x, the states if they are given, and the weights.
OperatorCase rnn_case(const Kind& kind, const Shape& shape) {
  OperatorCase test;
  test.tolerance = 1e-10;
  test.name = kind.name + ", " + shape.name;
  test.make = [=] {
    Tensors inputs = {random_sequence(shape)};
    if (shape.gives_states) {
      for (const Tensor& state : random_states(kind, shape)) inputs.push_back(state);
    }
    for (const Tensor& weight : random_weights(kind, shape)) inputs.push_back(weight);
    return inputs;
  };
  test.f = [=](const Tensors& in) {
    if (!shape.gives_states) {
      return run(kind, shape, in[0], zero_states(kind, shape, in[0]), Tensors(in.begin() + 1, in.end()));
    }
    const auto weights = in.begin() + (kind.has_cell ? 3 : 2);
    return run(kind, shape, in[0], Tensors(in.begin() + 1, weights), Tensors(weights, in.end()));
  };
  test.differentiable = test.make().size();
  return test;
}

TEST(RecurrentTest, EqualsTheLoop) {
  for (const Kind& kind : kinds()) check_set_ups(rnn_case(kind, {.name = "one layer"}));
}

TEST(RecurrentTest, EqualsTheLoopFromStatesThatAreNotMapped) {
  for (const Kind& kind : kinds()) check_set_ups(rnn_case(kind, {.name = "no states", .gives_states = false}));
}

TEST(RecurrentTest, EqualsTheLoopInLayersAndBothDirections) {
  for (const Kind& kind : kinds()) {
    check_set_ups(rnn_case(kind, {.name = "layers", .layers = 2, .bidirectional = true, .batch_first = true}));
  }
}

TEST(RecurrentTest, EqualsTheLoopWithoutBiases) {
  for (const Kind& kind : kinds()) check_set_ups(rnn_case(kind, {.name = "no biases", .has_biases = false}));
}

TEST(RecurrentTest, EqualsTheLoopWithProjections) {
  const Shape shape = {.name = "projection", .layers = 2, .bidirectional = true, .projection = 1};
  check_set_ups(rnn_case(kinds()[0], shape));
}

/// The packed rows of two sequences of 3 and 1 steps.
OperatorCase packed_case(const Kind& kind, const Shape& shape) {
  OperatorCase test = rnn_case(kind, shape);
  test.name += ", packed";
  const auto make_padded = test.make;
  test.make = [=] {
    Tensors inputs = make_padded();
    inputs[0] = random({4, kInput});
    return inputs;
  };
  const Tensor batch_sizes = at::tensor({2, 1, 1}, at::kLong);
  test.f = [=](const Tensors& in) {
    const auto begin = in.begin() + (kind.has_cell ? 3 : 2);
    const Tensors weights(begin, in.end());
    const auto call = [&](auto rnn, const auto& hx) {
      return rnn(in[0], batch_sizes, hx, weights, shape.has_biases, shape.layers, 0., false, shape.bidirectional);
    };
    if (kind.has_cell) {
      const auto [output, hidden, cell] =
          call([](const auto&... args) { return at::lstm(args...); }, at::TensorList(Tensors{in[1], in[2]}));
      return flat({output, hidden, cell});
    }
    const auto [output, hidden] = kind.name == "gru" ? call([](const auto&... args) { return at::gru(args...); }, in[1])
                                  : kind.name == "rnn_tanh"
                                      ? call([](const auto&... args) { return at::rnn_tanh(args...); }, in[1])
                                      : call([](const auto&... args) { return at::rnn_relu(args...); }, in[1]);
    return flat({output, hidden});
  };
  return test;
}

TEST(RecurrentTest, EqualsTheLoopOnPackedSequences) {
  for (const Kind& kind : kinds()) {
    check_set_ups(packed_case(kind, {.name = "one layer"}));
    check_set_ups(packed_case(kind, {.name = "layers", .layers = 2, .bidirectional = true}));
  }
}

/// A cell of `kind`: x, its states, both weights and, if it has them, both biases.
OperatorCase cell_case(const Kind& kind, bool has_biases) {
  OperatorCase test;
  test.tolerance = 1e-10;
  test.name = kind.name + "_cell";
  const std::size_t states = kind.has_cell ? 2 : 1;
  test.make = [=] {
    Tensors inputs = {random({kBatch, kInput})};
    for (std::size_t i = 0; i < states; ++i) inputs.push_back(random({kBatch, kHidden}));
    for (const Tensor& weight : random_weights(kind, {.name = "cell", .has_biases = has_biases}))
      inputs.push_back(weight);
    return inputs;
  };
  test.f = [=](const Tensors& in) {
    const auto call = [&](auto cell, const auto& hx) {
      if (has_biases) return cell(in[0], hx, in[states + 1], in[states + 2], in[states + 3], in[states + 4]);
      return cell(in[0], hx, in[states + 1], in[states + 2], Tensor(), Tensor());
    };
    if (kind.has_cell) {
      const Tensors hx = {in[1], in[2]};
      const auto [hidden, cell] = call([](const auto&... args) { return at::lstm_cell(args...); }, at::TensorList(hx));
      return flat({hidden, cell});
    }
    if (kind.name == "gru") return call([](const auto&... args) { return at::gru_cell(args...); }, in[1]);
    if (kind.name == "rnn_tanh") return call([](const auto&... args) { return at::rnn_tanh_cell(args...); }, in[1]);
    return call([](const auto&... args) { return at::rnn_relu_cell(args...); }, in[1]);
  };
  test.differentiable = test.make().size();
  return test;
}

TEST(RecurrentTest, CellsEqualTheLoop) {
  for (const Kind& kind : kinds()) {
    for (const bool has_biases : {true, false}) check_set_ups(cell_case(kind, has_biases));
  }
}

TEST(RecurrentTest, EqualsTheLoopInFloats) {
  // LibTorch takes its fused kernel for an LSTM of floats, of which it has no forward-mode derivative.
  const OperatorCase doubles = rnn_case(kinds()[0], {.name = "floats"});
  OperatorCase floats = doubles;
  floats.tolerance = 1e-5;
  floats.make = [=] {
    Tensors inputs = doubles.make();
    for (Tensor& input : inputs) input = input.to(at::kFloat);
    return inputs;
  };
  check_set_ups(floats);
}

/// An LSTM of two layers that drops half of what lies between them.
struct DroppingLstm {
  Shape shape = {.name = "dropout", .layers = 2};
  Tensors states = random_states(kinds()[0], shape), weights = random_weights(kinds()[0], shape);

  Tensor operator()(const Tensor& x) const { return run(kinds()[0], shape, x, states, weights, /*dropout=*/0.5); }
};

TEST(RecurrentTest, DropsTheSameOfAllSamples) {
  const DroppingLstm lstm;
  const Tensor x = random({3, kSteps, kBatch, kInput});
  at::manual_seed(1);
  const Tensor got = vmap(lstm, {.randomness = Randomness::kSame})(x);
  for (int64_t i = 0; i < 3; ++i) {
    at::manual_seed(1);
    EXPECT_TRUE(got[i].allclose(lstm(x[i]), 1e-12, 1e-12));
  }
}

TEST(RecurrentTest, DropsSomethingElseOfEachSample) {
  const DroppingLstm lstm;
  const Tensor x = random({kSteps, kBatch, kInput}).expand({3, -1, -1, -1});
  const Tensor got = vmap(lstm, {.randomness = Randomness::kDifferent})(x);
  EXPECT_FALSE(got[0].allclose(got[1]));
}

TEST(RecurrentTest, RefusesToDropWithoutAWordOnRandomness) {
  EXPECT_THAT(
      [] {
        vmap(DroppingLstm())(random({3, kSteps, kBatch, kInput}));
      },
      ThrowsWith<std::exception>("randomness"));
}

TEST(RecurrentTest, ChecksItsArguments) {
  const Shape shape = {.name = "checked"};
  const Kind& lstm = kinds()[0];
  const Tensors states = random_states(lstm, shape), weights = random_weights(lstm, shape);
  const Tensor x = random({3, kSteps, kBatch, kInput});
  const auto call = [&](const Tensors& hx, const Tensors& params) {
    return [=] { vmap([&](const Tensor& in) { return run(lstm, shape, in, hx, params); })(x); };
  };
  EXPECT_THAT(call({states[0]}, weights), ThrowsWith<c10::Error>("lstm expects two hidden states"));
  EXPECT_THAT(call(states, {weights[0], weights[1]}), ThrowsWith<c10::Error>("incorrect number of RNN parameters"));
  EXPECT_THAT(call({states[0].narrow(1, 0, 1), states[1]}, weights), ThrowsWith<c10::Error>("Expected a hidden state"));
  EXPECT_THAT(call({states[0], states[1].to(at::kFloat)}, weights), ThrowsWith<c10::Error>("not the same dtype"));
}

TEST(RecurrentTest, IsRegistered) {
  for (const Kind& kind : kinds()) {
    for (const char* overload : {"input", "data"}) {
      const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(("aten::" + kind.name).c_str(), overload);
      EXPECT_TRUE(op.hasKernelForDispatchKey(c10::DispatchKey::FuncTorchDynamicLayerFrontMode)) << kind.name;
    }
    const auto cell = c10::Dispatcher::singleton().findSchemaOrThrow(("aten::" + kind.name + "_cell").c_str(), "");
    EXPECT_TRUE(cell.hasKernelForDispatchKey(c10::DispatchKey::FuncTorchDynamicLayerFrontMode)) << kind.name;
  }
}

}  // namespace
}  // namespace graft::testing
