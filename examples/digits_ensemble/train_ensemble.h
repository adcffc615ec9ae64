// The job that the example is about: training all members at once, with vmap over grad.
#pragma once

#include "examples/digits_ensemble/digits.h"
#include "examples/digits_ensemble/mlp.h"
#include "examples/digits_ensemble/progress.h"
#include "examples/digits_ensemble/training.h"
#include "vmap/ensemble.h"

namespace digits_ensemble {

using MlpEnsemble = graft::Ensemble<Mlp>;

/// Trains `ensemble` in place, each member on its own bootstrap of `split.train`. Stops when the ensemble's negative
/// log-likelihood on `split.validation` has not improved for five epochs, or after `options.epochs`, and then goes back
/// to the parameters of the best epoch.
TrainingLog train_ensemble(MlpEnsemble& ensemble, const Split& split, const TrainingOptions& options,
                           Progress& progress);

/// Returns the probabilities that each member gives: [n, 64] -> [m, n, 10].
at::Tensor predict(const MlpEnsemble& ensemble, const at::Tensor& pixels);

}  // namespace digits_ensemble
