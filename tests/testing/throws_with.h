// A matcher for calls that throw: `EXPECT_THAT([&] { f(); }, ThrowsWith<c10::ValueError>("f", "\"fc1.weight\""))`.
#pragma once

#include <gmock/gmock.h>

#include <string>

namespace graft::testing {

/// Matches a callable that throws an `Exception` whose text contains every one of `parts`.
template <typename Exception, typename... Parts>
auto ThrowsWith(const Parts&... parts) {
  return ::testing::Throws<Exception>(
      ::testing::Property(&Exception::what, ::testing::AllOf(::testing::HasSubstr(std::string(parts))...)));
}

}  // namespace graft::testing
