// Matchers for trees that print the paths of the leaves that differ.
#pragma once

#include <gmock/gmock.h>

#include "tensordict/print.h"
#include "tensordict/tensordict.h"

namespace graft::testing {

/// Matches a tree with the keys, batch size, shapes, dtypes and devices of `expected`, and values at most `tolerance`
/// away. NaN matches NaN.
::testing::Matcher<const TensorDict&> TensorDictNear(const TensorDict& expected, double tolerance);

/// Matches a tree with the very values of `expected`.
::testing::Matcher<const TensorDict&> TensorDictEq(const TensorDict& expected);

}  // namespace graft::testing
