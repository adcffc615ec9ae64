// Kernels for RNN, LSTM, GRU and their cells, which LibTorch refuses under vmap: its own code writes the mapped gates
// of the input in place into those of a hidden state that need not be mapped, and for an LSTM of floats it calls a
// fused kernel without forward-mode derivatives. Here the time loop is in plain operators, and the gates of the input
// are made for all steps by one product. See [Kernels on the front key] in losses.cc.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <tuple>
#include <vector>

#include "functional/rules/optional_tensor.h"

namespace graft {
namespace {

using at::Tensor;
using internal::OptionalTensor;

/// What a step hands to the next, one row for each sequence. Only an LSTM has a cell state.
struct State {
  Tensor hidden;
  Tensor cell;
};

/// The parameters of one layer in one direction. Those that multiply a hidden state are transposed, once for all steps.
/// The gates of an LSTM are in the order input, forget, output, cell: one sigmoid then makes the first three.
struct Weights {
  Tensor input, hidden;
  Tensor input_bias, hidden_bias;  ///< undefined if there are none
  Tensor projection;               ///< of an LSTM with `proj_size` alone
};

/// The step from one state to the next. \param from_input the gates as the input alone makes them.
using Step = State (*)(const Tensor& from_input, const State& before, const Weights& weights);

struct Cell {
  Step step;
  int64_t gates;
  bool adds_biases;           ///< The two biases are only ever added up, so one of the input serves for both.
  bool moves_cell_gate_last;  ///< see Weights
};

// --- The cells

State lstm_step(const Tensor& from_input, const State& before, const Weights& weights) {
  const Tensor gates = at::addmm(from_input, before.hidden, weights.hidden);
  const int64_t size = gates.size(-1) / 4;
  const auto parts = gates.split_with_sizes({3 * size, size}, -1);
  const auto open = parts[0].sigmoid().chunk(3, -1);
  const Tensor cell = at::addcmul(open[0] * parts[1].tanh(), open[1], before.cell);
  const Tensor hidden = open[2] * cell.tanh();
  return {weights.projection.defined() ? hidden.mm(weights.projection) : hidden, cell};
}

State gru_step(const Tensor& from_input, const State& before, const Weights& weights) {
  const Tensor from_hidden = weights.hidden_bias.defined()
                                 ? at::addmm(weights.hidden_bias, before.hidden, weights.hidden)
                                 : before.hidden.mm(weights.hidden);
  const auto input = from_input.chunk(3, -1), hidden = from_hidden.chunk(3, -1);
  const Tensor reset = (input[0] + hidden[0]).sigmoid();
  const Tensor update = (input[1] + hidden[1]).sigmoid();
  const Tensor candidate = (input[2] + reset * hidden[2]).tanh();
  return {candidate + update * (before.hidden - candidate), {}};
}

State rnn_tanh_step(const Tensor& from_input, const State& before, const Weights& weights) {
  return {at::addmm(from_input, before.hidden, weights.hidden).tanh(), {}};
}

State rnn_relu_step(const Tensor& from_input, const State& before, const Weights& weights) {
  return {at::addmm(from_input, before.hidden, weights.hidden).relu(), {}};
}

constexpr Cell kLstm{lstm_step, 4, true, true};
constexpr Cell kGru{gru_step, 3, false, false};
constexpr Cell kRnnTanh{rnn_tanh_step, 1, true, false};
constexpr Cell kRnnRelu{rnn_relu_step, 1, true, false};

/// The rows belong to the gates input, forget, cell and output.
void move_cell_gate_last(Tensor& rows) {
  if (!rows.defined()) return;
  const auto gates = rows.chunk(4);
  rows = at::cat({gates[0], gates[1], gates[3], gates[2]});
}

/// Returns `weights` ready for the steps of `cell`.
Weights prepared(Weights weights, const Cell& cell) {
  if (cell.moves_cell_gate_last) {
    for (Tensor* rows : {&weights.input, &weights.hidden, &weights.input_bias, &weights.hidden_bias}) {
      move_cell_gate_last(*rows);
    }
  }
  weights.hidden = weights.hidden.t();
  if (weights.projection.defined()) weights.projection = weights.projection.t();
  if (cell.adds_biases && weights.hidden_bias.defined()) {
    weights.input_bias = weights.input_bias.defined() ? weights.input_bias + weights.hidden_bias : weights.hidden_bias;
  }
  return weights;
}

/// Returns the gates that the input alone makes, of all steps at once.
Tensor gates_of_input(const Tensor& input, const Weights& weights) {
  return at::linear(input, weights.input, weights.input_bias.defined() ? weights.input_bias : OptionalTensor());
}

// --- One direction of one layer

template <typename Function>
State map(const State& state, Function function) {
  return {function(state.hidden), state.cell.defined() ? function(state.cell) : Tensor()};
}

int64_t rows_of(const State& state) { return state.hidden.size(0); }

State rows(const State& state, int64_t begin, int64_t end) {
  return map(state, [&](const Tensor& tensor) { return tensor.narrow(0, begin, end - begin); });
}

/// Joins the hidden states by `combine`, and the cell states if there are any.
template <typename Combine>
State combined(const std::vector<State>& states, Combine combine) {
  std::vector<Tensor> hidden, cell;
  for (const State& state : states) {
    hidden.push_back(state.hidden);
    if (state.cell.defined()) cell.push_back(state.cell);
  }
  return {combine(hidden), cell.empty() ? Tensor() : combine(cell)};
}

State cat(const std::vector<State>& states) {
  if (states.size() == 1) return states[0];
  return combined(states, [](const std::vector<Tensor>& tensors) { return at::cat(tensors); });
}

State stack(const std::vector<State>& states) {
  return combined(states, [](const std::vector<Tensor>& tensors) { return at::stack(tensors); });
}

struct Run {
  std::vector<Tensor> outputs;  ///< of each step, in the order of time
  State last;
};

/// Runs from the first step to the last. Later steps may have fewer rows: the sequences of the others have ended.
Run run_forward(const Cell& cell, const std::vector<Tensor>& steps, const State& first, const Weights& weights) {
  Run run;
  State now = first;
  std::vector<State> ended;
  for (const Tensor& from_input : steps) {
    const int64_t count = from_input.size(0);
    if (count < rows_of(now)) {
      ended.push_back(rows(now, count, rows_of(now)));
      now = rows(now, 0, count);
    }
    now = cell.step(from_input, now, weights);
    run.outputs.push_back(now.hidden);
  }
  ended.push_back(now);
  std::reverse(ended.begin(), ended.end());
  run.last = cat(ended);
  return run;
}

/// Runs from the last step to the first, which may have more rows: shorter sequences join where they end.
Run run_backward(const Cell& cell, const std::vector<Tensor>& steps, const State& first, const Weights& weights) {
  Run run;
  State now = first;
  if (steps.back().size(0) < rows_of(now)) now = rows(now, 0, steps.back().size(0));
  for (auto from_input = steps.rbegin(); from_input != steps.rend(); ++from_input) {
    const int64_t count = from_input->size(0);
    if (count > rows_of(now)) now = cat({now, rows(first, rows_of(now), count)});
    now = cell.step(*from_input, now, weights);
    run.outputs.push_back(now.hidden);
  }
  std::reverse(run.outputs.begin(), run.outputs.end());
  run.last = now;
  return run;
}

// --- All layers

struct Options {
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train;
  bool bidirectional;

  int64_t directions() const { return bidirectional ? 2 : 1; }
};

/// The number of rows of each step of a packed sequence; none for a tensor whose first dim counts the steps.
using PackedRows = std::optional<std::vector<int64_t>>;

std::vector<Tensor> split(const Tensor& input, const PackedRows& packed) {
  return packed ? input.split_with_sizes(*packed) : input.unbind(0);
}

Tensor join(const std::vector<Tensor>& steps, const PackedRows& packed) {
  return packed ? at::cat(steps) : at::stack(steps);
}

/// Returns the parameters of each layer, all directions of one layer after another.
std::vector<Weights> read_weights(at::TensorList params, const Options& options, bool has_projection) {
  const std::size_t each = 2 + (options.has_biases ? 2 : 0) + (has_projection ? 1 : 0);
  const auto count = static_cast<std::size_t>(options.num_layers * options.directions());
  TORCH_CHECK(params.size() == each * count, "got an incorrect number of RNN parameters: ", params.size(),
              ", expected ", each * count);
  std::vector<Weights> all;
  for (auto next = params.begin(); next != params.end();) {
    Weights& weights = all.emplace_back();
    weights.input = *next++;
    weights.hidden = *next++;
    if (options.has_biases) {
      weights.input_bias = *next++;
      weights.hidden_bias = *next++;
    }
    if (has_projection) weights.projection = *next++;
  }
  return all;
}

struct Result {
  Tensor output;
  State last;  ///< of each layer and direction, stacked
};

/// Runs all layers. \param first the states of each layer and direction, stacked.
Result run_layers(const Cell& cell, Tensor input, const PackedRows& packed, const State& first,
                  const std::vector<Weights>& all_weights, const Options& options) {
  std::vector<State> last;
  for (int64_t layer = 0; layer < options.num_layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < options.directions(); ++direction) {
      const int64_t index = layer * options.directions() + direction;
      const Weights weights = prepared(all_weights[index], cell);
      const auto steps = split(gates_of_input(input, weights), packed);
      const State start = map(first, [&](const Tensor& states) { return states.select(0, index); });
      const Run run = (direction == 0 ? run_forward : run_backward)(cell, steps, start, weights);
      outputs.push_back(join(run.outputs, packed));
      last.push_back(run.last);
    }
    input = options.bidirectional ? at::cat(outputs, -1) : outputs[0];
    const bool drops = options.train && options.dropout != 0 && layer + 1 < options.num_layers;
    if (drops) input = at::dropout(input, options.dropout, /*train=*/true);
  }
  return {input, stack(last)};
}

// --- Arguments

/// LibTorch's own checks: without them a sum of tensors of two dtypes would promote.
void check_same_options(const Tensor& input, std::initializer_list<at::TensorList> lists) {
  for (const at::TensorList list : lists) {
    for (const Tensor& tensor : list) {
      TORCH_CHECK(!tensor.defined() || tensor.device() == input.device(),
                  "Input, hidden and parameter tensors are not at the same device, found ", input.device(), " and ",
                  tensor.device());
      TORCH_CHECK(!tensor.defined() || tensor.scalar_type() == input.scalar_type(),
                  "Input, hidden and parameter tensors are not the same dtype, found ", input.scalar_type(), " and ",
                  tensor.scalar_type());
    }
  }
}

void check_states(const State& first, int64_t batch, const Options& options) {
  const int64_t count = options.num_layers * options.directions();
  for (const Tensor& states : {first.hidden, first.cell}) {
    if (!states.defined()) continue;
    TORCH_CHECK(states.dim() == 3 && states.size(0) == count && states.size(1) == batch, "Expected a hidden state of ",
                count, " layers and directions for a batch of ", batch, ", got one of shape ", states.sizes());
  }
}

std::vector<int64_t> read_rows(const Tensor& batch_sizes) {
  std::vector<int64_t> sizes;
  for (const Tensor& size : batch_sizes.unbind(0)) sizes.push_back(size.item<int64_t>());
  return sizes;
}

// --- The operators

State state_of(at::TensorList hx) { return {hx[0], hx.size() == 2 ? hx[1] : Tensor()}; }

bool has_projection(const State& state) { return state.cell.defined() && state.hidden.size(-1) != state.cell.size(-1); }

/// A padded sequence: (step, batch, feature), the first two swapped if `batch_first`, or (step, feature).
Result run_padded(const Cell& cell, const Tensor& input, at::TensorList hx, at::TensorList params,
                  const Options& options, bool batch_first) {
  check_same_options(input, {hx, params});
  TORCH_CHECK(input.dim() == 2 || input.dim() == 3, "Expected an input of 2 or 3 dims, got shape ", input.sizes());
  const bool is_batched = input.dim() == 3, swaps = is_batched && batch_first;
  const auto add_batch = [&](const Tensor& tensor) { return is_batched ? tensor : tensor.unsqueeze(1); };
  const Tensor sequence = swaps ? input.transpose(0, 1) : add_batch(input);
  TORCH_CHECK(sequence.size(0) > 0, "Expected sequence length to be larger than 0 in RNN");
  const State first = map(state_of(hx), add_batch);
  check_states(first, sequence.size(1), options);
  const auto weights = read_weights(params, options, has_projection(first));
  Result result = run_layers(cell, sequence, std::nullopt, first, weights, options);
  if (swaps) result.output = result.output.transpose(0, 1);
  if (!is_batched) {
    result.output = result.output.squeeze(1);
    result.last = map(result.last, [](const Tensor& states) { return states.squeeze(1); });
  }
  return result;
}

/// A packed sequence: the rows of all steps one after another.
Result run_packed(const Cell& cell, const Tensor& data, const Tensor& batch_sizes, at::TensorList hx,
                  at::TensorList params, const Options& options) {
  check_same_options(data, {hx, params});
  const std::vector<int64_t> packed = read_rows(batch_sizes);
  TORCH_CHECK(!packed.empty(), "Expected sequence length to be larger than 0 in RNN");
  const State first = state_of(hx);
  check_states(first, packed[0], options);
  const auto weights = read_weights(params, options, has_projection(first));
  return run_layers(cell, data, packed, first, weights, options);
}

template <const Cell& kCell>
std::tuple<Tensor, Tensor> rnn_input_rule(const Tensor& input, const Tensor& hx, at::TensorList params, bool has_biases,
                                          int64_t num_layers, double dropout, bool train, bool bidirectional,
                                          bool batch_first) {
  const Options options{has_biases, num_layers, dropout, train, bidirectional};
  const Result result = run_padded(kCell, input, hx, params, options, batch_first);
  return {result.output, result.last.hidden};
}

template <const Cell& kCell>
std::tuple<Tensor, Tensor> rnn_data_rule(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx,
                                         at::TensorList params, bool has_biases, int64_t num_layers, double dropout,
                                         bool train, bool bidirectional) {
  const Options options{has_biases, num_layers, dropout, train, bidirectional};
  const Result result = run_packed(kCell, data, batch_sizes, hx, params, options);
  return {result.output, result.last.hidden};
}

std::tuple<Tensor, Tensor, Tensor> lstm_input_rule(const Tensor& input, at::TensorList hx, at::TensorList params,
                                                   bool has_biases, int64_t num_layers, double dropout, bool train,
                                                   bool bidirectional, bool batch_first) {
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  const Options options{has_biases, num_layers, dropout, train, bidirectional};
  const Result result = run_padded(kLstm, input, hx, params, options, batch_first);
  return {result.output, result.last.hidden, result.last.cell};
}

std::tuple<Tensor, Tensor, Tensor> lstm_data_rule(const Tensor& data, const Tensor& batch_sizes, at::TensorList hx,
                                                  at::TensorList params, bool has_biases, int64_t num_layers,
                                                  double dropout, bool train, bool bidirectional) {
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  const Options options{has_biases, num_layers, dropout, train, bidirectional};
  const Result result = run_packed(kLstm, data, batch_sizes, hx, params, options);
  return {result.output, result.last.hidden, result.last.cell};
}

/// One step of a cell alone, with or without a batch dim.
State run_cell(const Cell& cell, const Tensor& input, at::TensorList hx, const Tensor& w_ih, const Tensor& w_hh,
               const OptionalTensor& b_ih, const OptionalTensor& b_hh) {
  const Tensor input_bias = b_ih.value_or(Tensor()), hidden_bias = b_hh.value_or(Tensor());
  check_same_options(input, {hx, {w_ih, w_hh, input_bias, hidden_bias}});
  TORCH_CHECK(input.size(-1) == w_ih.size(1), "input has inconsistent input_size: got ", input.size(-1), " expected ",
              w_ih.size(1));
  for (const Tensor& state : hx) {
    auto expected = input.sizes().vec();
    expected.back() = w_ih.size(0) / cell.gates;
    TORCH_CHECK(state.sizes() == expected, "hidden state has inconsistent shape: got ", state.sizes(), ", expected ",
                at::IntArrayRef(expected));
  }
  const Weights weights = prepared({w_ih, w_hh, input_bias, hidden_bias, {}}, cell);
  if (input.dim() == 2) return cell.step(gates_of_input(input, weights), state_of(hx), weights);
  const State before = map(state_of(hx), [](const Tensor& state) { return state.unsqueeze(0); });
  const State after = cell.step(gates_of_input(input.unsqueeze(0), weights), before, weights);
  return map(after, [](const Tensor& state) { return state.squeeze(0); });
}

template <const Cell& kCell>
Tensor cell_rule(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                 const OptionalTensor& b_ih, const OptionalTensor& b_hh) {
  return run_cell(kCell, input, hx, w_ih, w_hh, b_ih, b_hh).hidden;
}

std::tuple<Tensor, Tensor> lstm_cell_rule(const Tensor& input, at::TensorList hx, const Tensor& w_ih,
                                          const Tensor& w_hh, const OptionalTensor& b_ih, const OptionalTensor& b_hh) {
  TORCH_CHECK(hx.size() == 2, "lstm_cell expects two hidden states");
  const State next = run_cell(kLstm, input, hx, w_ih, w_hh, b_ih, b_hh);
  return {next.hidden, next.cell};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchDynamicLayerFrontMode, library) {
  library.impl("lstm.input", lstm_input_rule);
  library.impl("lstm.data", lstm_data_rule);
  library.impl("gru.input", rnn_input_rule<kGru>);
  library.impl("gru.data", rnn_data_rule<kGru>);
  library.impl("rnn_tanh.input", rnn_input_rule<kRnnTanh>);
  library.impl("rnn_tanh.data", rnn_data_rule<kRnnTanh>);
  library.impl("rnn_relu.input", rnn_input_rule<kRnnRelu>);
  library.impl("rnn_relu.data", rnn_data_rule<kRnnRelu>);
  library.impl("lstm_cell", lstm_cell_rule);
  library.impl("gru_cell", cell_rule<kGru>);
  library.impl("rnn_tanh_cell", cell_rule<kRnnTanh>);
  library.impl("rnn_relu_cell", cell_rule<kRnnRelu>);
}

}  // namespace graft
