// The rival of train_ensemble.h: plain LibTorch, one member after the other.
#pragma once

#include <vector>

#include "examples/digits_ensemble/digits.h"
#include "examples/digits_ensemble/mlp.h"
#include "examples/digits_ensemble/training.h"

namespace digits_ensemble {

/// Trains every member in place, on the same batches as `train_ensemble`, for exactly `options.epochs` epochs.
TrainingLog train_loop(const std::vector<Mlp>& members, const Digits& train, const TrainingOptions& options);

}  // namespace digits_ensemble
