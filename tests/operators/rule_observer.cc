#include "tests/operators/rule_observer.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <map>
#include <optional>

namespace graft::testing {
namespace {

/// Says whether Graft has a kernel for an operator: the dispatcher knows the file that each kernel is from.
bool has_rule(const c10::OperatorHandle& op) {
  static std::map<std::string, bool> known;
  const auto [place, is_new] = known.emplace(c10::toString(op.operator_name()), false);
  if (is_new) place->second = op.dumpState().find("functional/rules/") != std::string::npos;
  return place->second;
}

}  // namespace

thread_local std::set<std::string>* RuleObserver::noted_ = nullptr;

RuleObserver::RuleObserver(std::set<std::string>& rules)
    : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&note).scopes({at::RecordScope::FUNCTION}))) {
  noted_ = &rules;
}

RuleObserver::~RuleObserver() { at::removeCallback(handle_); }

std::unique_ptr<at::ObserverContext> RuleObserver::note(const at::RecordFunction& call) {
  const auto name = call.operator_name();
  const auto op = name ? c10::Dispatcher::singleton().findOp(*name) : std::nullopt;
  if (op && has_rule(*op)) {
    noted_->insert(name->name.substr(name->name.rfind(':') + 1));
  }
  return nullptr;
}

}  // namespace graft::testing
