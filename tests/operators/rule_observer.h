// RuleObserver: which operators run for which Graft has a kernel.
//
//   std::set<std::string> rules;
//   {
//     const RuleObserver observer(rules);
//     grad(loss)(x);
//   }
#pragma once

#include <ATen/record_function.h>

#include <memory>
#include <set>
#include <string>

namespace graft::testing {

/// Notes them on this thread, without their namespace, as long as it lives.
class RuleObserver {
 public:
  explicit RuleObserver(std::set<std::string>& rules);
  ~RuleObserver();
  RuleObserver(const RuleObserver&) = delete;
  RuleObserver& operator=(const RuleObserver&) = delete;

 private:
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& call);

  static thread_local std::set<std::string>* noted_;
  const at::CallbackHandle handle_;
};

}  // namespace graft::testing
