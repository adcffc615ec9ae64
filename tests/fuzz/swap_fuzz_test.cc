// Random modules, trees, options and bodies: whatever happens in a scope, afterwards everything is as before, and
// within it the module computes what a twin computes that was given the same values by plain LibTorch.
//
// A failure prints its seed. That seed alone:
//   ./bazelw test //tests/fuzz:swap_fuzz_test --test_env=GRAFT_FUZZ_SEED=<seed> --test_env=GRAFT_FUZZ_RUNS=1
// Many more than the suite has time for: //tests/fuzz:swap_fuzz_long_test.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string>

#include "functional/functional_call.h"
#include "functional/to_module.h"
#include "tests/fuzz/changes.h"
#include "tests/fuzz/net_state.h"
#include "tests/fuzz/random.h"
#include "tests/fuzz/random_changes.h"
#include "tests/fuzz/random_net.h"
#include "tests/fuzz/random_swap.h"
#include "tests/fuzz/redirects.h"
#include "tests/fuzz/swap_checks.h"
#include "tests/fuzz/swap_model.h"
#include "tests/fuzz/swap_scope.h"
#include "tests/fuzz/twin.h"

namespace graft::testing {
namespace {

struct BodyError {};

/// How often each thing was seen, to know that the runs are worth something.
struct Counts {
  int64_t installed = 0, index_refusals = 0, value_refusals = 0, thrown = 0;
  ComparisonCounts comparisons;
};

class FuzzRun {
 public:
  FuzzRun(uint64_t seed, Counts& counts) : net_(seed, Ties::kDrawn), twin_(seed), random_(~seed), counts_(counts) {}

  void run() {
    for (int64_t count = 1 + random_.below(3); count > 0 && !::testing::Test::HasFailure(); --count) {
      log_.str("");
      try {
        scope(/*depth=*/0);
      } catch (const BodyError&) {
        ++counts_.thrown;
      }
    }
  }

  /// Returns what the last scope and those in it did.
  std::string log() const { return log_.str(); }

 private:
  void scope(int depth);
  void log_start(const SwapScope& scope);
  void by_guard(SwapScope& scope);
  void for_good(SwapScope& scope);
  void by_call(SwapScope& scope);
  Outcome call(const SwapScope& scope, std::optional<std::size_t> cut);
  template <typename Install>
  bool is_refused(SwapScope& scope, const Install& install);
  void forward_in(const SwapScope& scope);
  void note_statistics(const SwapScope& scope);
  template <typename Body>
  bool throws(const Body& body);
  void body(const SwapScope& scope);
  void put_back(SwapScope& scope, const std::optional<TensorDict>& old);

  RandomNet net_;
  Twin twin_;
  Random random_;
  Counts& counts_;
  Redirects redirects_;
  std::ostringstream log_;
  Changes changes_;
  RandomChanges body_changes_{random_, net_, changes_, log_};
  const SwapChecker checker_{net_, changes_};
  int for_good_ = 0;  ///< how many installations there are that only the old values undo
};

void FuzzRun::scope(int depth) {
  const SwapPlace place = {.depth = depth, .is_in_call = redirects_.is_in_call(), .has_ties = body_changes_.has_ties()};
  SwapScope scope(draw_swap(random_, net_, place), net_, changes_);
  if (scope.is_mixed() || scope.is_history_needed(net_)) return;
  log_start(scope);
  switch (scope.swap.mechanism) {
    case Mechanism::kGuard:
      return by_guard(scope);
    case Mechanism::kForGood:
      return for_good(scope);
    case Mechanism::kCall:
      return by_call(scope);
  }
}

void FuzzRun::log_start(const SwapScope& scope) {
  static const char* const kNames[] = {"guard", "for good", "call"};
  log_ << std::string(2 * scope.swap.depth, ' ') << kNames[static_cast<int>(scope.swap.mechanism)] << " on "
       << scope.swap.target->name() << ", leaves";
  for (const auto& [path, leaf] : scope.swap.tree.leaves()) {
    log_ << ' ' << path << leaf.sizes() << leaf.scalar_type() << (leaf.requires_grad() ? "*" : "");
  }
  const ToModuleOptions& o = scope.options;
  log_ << "; inplace " << o.inplace << " strict " << o.strict << " state_dict " << o.use_state_dict << " preserve "
       << o.preserve_module_state << " shapes " << o.check_shapes << " expected refusal "
       << static_cast<int>(scope.expected.refusal) << '\n';
}

/// Installs, or checks the refusal and that nothing has changed.
template <typename Install>
bool FuzzRun::is_refused(SwapScope& scope, const Install& install) {
  Refusal refusal = Refusal::kNone;
  std::string text;
  try {
    install();
  } catch (const c10::IndexError& error) {
    refusal = Refusal::kIndex;
    text = error.what_without_backtrace();
  } catch (const c10::ValueError& error) {
    refusal = Refusal::kValue;
    text = error.what_without_backtrace();
  }
  EXPECT_EQ(static_cast<int>(refusal), static_cast<int>(scope.expected.refusal)) << text;
  if (refusal == Refusal::kNone) {
    ++counts_.installed;
    return scope.expected.refusal != Refusal::kNone;
  }
  ++(refusal == Refusal::kIndex ? counts_.index_refusals : counts_.value_refusals);
  for (const std::string& name : scope.expected.named) EXPECT_NE(text.find(name), std::string::npos) << name << text;
  EXPECT_EQ(scope.swap_dest.size(), 1);
  scope.written.clear();
  scope.contents.clear();
  const NetState now(net_);
  checker_.check_after(scope, now, now);
  return true;
}

void FuzzRun::by_guard(SwapScope& scope) {
  std::optional<ToModuleGuard> guard;
  if (is_refused(scope, [&] { guard.emplace(scope.swap.tree, *scope.swap.target, scope.options); })) return;
  const NetState inside(net_);
  checker_.check_installed(scope);
  checker_.check_old(scope, guard->swapped_out());
  checker_.check_current(scope, guard->current());
  if (scope.options.swap_dest != nullptr) {
    EXPECT_EQ(scope.swap_dest.size(), guard->swapped_out().size() + 1);
    checker_.check_old(scope, scope.swap_dest);
  }
  forward_in(scope);
  const bool has_thrown = throws([&] { body(scope); });
  const NetState end(net_);
  guard.reset();
  checker_.check_after(scope, inside, end);
  if (has_thrown) throw BodyError();
}

/// Runs the net and its twin.
void FuzzRun::forward_in(const SwapScope& scope) {
  if (random_.chance(20)) return;
  if (const auto expected = twin_.forward(net_, scope, redirects_)) {
    note_statistics(scope);
    compare(net_, *expected, outcome_of([&] { return net_.forward(); }), /*with_gradients=*/true, counts_.comparisons);
  }
}

/// What the next forward writes to.
void FuzzRun::note_statistics(const SwapScope& scope) {
  for (const Cell& cell : net_.cells()) {
    if (is_written_by_forward(cell) && cell.handle() != nullptr) changes_.note_write(redirects_.read_in(scope, cell));
  }
}

void FuzzRun::for_good(SwapScope& scope) {
  std::optional<TensorDict> old;
  if (is_refused(scope, [&] { old = to_module(scope.swap.tree, *scope.swap.target, scope.options); })) return;
  const NetState inside(net_);
  EXPECT_EQ(old.has_value(), scope.options.return_swap);
  checker_.check_installed(scope);
  if (old) checker_.check_old(scope, *old);
  if (scope.options.swap_dest != nullptr) checker_.check_old(scope, scope.swap_dest);
  forward_in(scope);
  ++for_good_;
  const bool has_thrown = throws([&] { body(scope); });
  --for_good_;
  put_back(scope, old);
  checker_.check_after(scope, inside, NetState(net_));
  if (has_thrown) throw BodyError();
}

/// Calls to_module with the old values; empties by hand what was empty, which no leaf can say.
void FuzzRun::put_back(SwapScope& scope, const std::optional<TensorDict>& old) {
  TensorDict values, exact;
  for (const auto& [path, leaf] : scope.swap.tree.leaves()) {
    const Entry& entry = *scope.swap.view.find(path);
    const Fact& before = scope.before.handles.at(id_of(entry));
    if (!before.tensor.defined()) {
      registry_of({entry.module, entry.is_buffer})[entry.name] = Tensor();
      for (const Cell* const cell : entry.cells) *cell->handle() = Tensor();
    } else if (scope.contents.contains(before.tensor.unsafeGetTensorImpl())) {
      values.set(path, old ? old->at(path) : before.values);
    } else {
      exact.set(path, old ? old->at(path) : before.tensor);
    }
  }
  // A tensor that was changed under several names is given one value.
  std::map<const at::TensorImpl*, Tensor> value_of;
  for (const auto& [path, value] : TensorDict(values).leaves()) {
    const Entry& entry = *scope.swap.view.find(path);
    values.set(
        path,
        value_of.emplace(scope.before.handles.at(id_of(entry)).tensor.unsafeGetTensorImpl(), value).first->second);
  }
  to_module(exact, *scope.swap.target, {.preserve_module_state = false, .check_shapes = false});
  to_module(values, *scope.swap.target, {.inplace = scope.options.inplace});
}

void FuzzRun::by_call(SwapScope& scope) {
  std::optional<NetState> inside, end;
  const auto expected =
      scope.expected.refusal == Refusal::kNone ? twin_.forward(net_, scope, redirects_) : std::nullopt;
  note_statistics(scope);
  bool has_thrown = false;
  const auto in_call = [&] {
    redirects_.begin_call(scope.expected.redirects);
    checker_.check_installed(scope);
    inside.emplace(net_);
    has_thrown = throws([&] { body(scope); });
    end.emplace(net_);
    for (const Cell& cell : net_.cells()) {  // what the body has assigned, and forward will write to
      if (!is_written_by_forward(cell) || cell.handle() == nullptr) continue;
      changes_.note_write(redirects_.resolved(*cell.handle()));
    }
    redirects_.end_call();
    if (has_thrown) throw BodyError();
  };
  const bool at_start = random_.chance(10);
  (at_start ? scope.swap.called->at_start : scope.swap.called->at_end) = in_call;
  const int64_t writes = changes_.writes();
  const bool in_two = random_.chance(30);
  const std::size_t cut = random_.below(static_cast<int64_t>(scope.swap.tree.size()) + 1);
  if (scope.expected.refusal != Refusal::kNone) {
    const bool refused = is_refused(scope, [&] {
      const TensorDict tree = scope.swap.tree;
      functional_call(*scope.swap.called, tree, net_.x());
    });
    EXPECT_TRUE(refused);
    scope.swap.called->at_start = scope.swap.called->at_end = nullptr;
    return;
  }
  const Outcome got = call(scope, in_two ? std::optional(cut) : std::nullopt);
  scope.swap.called->at_start = scope.swap.called->at_end = nullptr;
  ++counts_.installed;
  if (!has_thrown && !at_start && expected) {
    compare(net_, *expected, got, /*with_gradients=*/writes == changes_.writes(), counts_.comparisons);
  }
  const NetState now(net_);
  checker_.check_after(scope, inside ? *inside : now, end ? *end : now);
  if (has_thrown) throw BodyError();
}

/// Calls with the whole tree, or with what is before and after a place as two trees.
Outcome FuzzRun::call(const SwapScope& scope, std::optional<std::size_t> cut) {
  const TensorDict& tree = scope.swap.tree;
  try {
    return outcome_of([&] {
      if (!cut) return functional_call(*scope.swap.called, tree, net_.x());
      TensorDict first, second;
      for (std::size_t i = 0; i < tree.size(); ++i) {
        (i < *cut ? first : second).set(tree.keys()->path(i), tree.values()[i]);
      }
      return functional_call(*scope.swap.called, {first, second}, net_.x());
    });
  } catch (const BodyError&) {
    return {};
  }
}

template <typename Body>
bool FuzzRun::throws(const Body& body) {
  try {
    body();
  } catch (const BodyError&) {
    return true;
  }
  return false;
}

/// Does some things to the module. What only a guard or a call could undo is left out within an installation for good.
void FuzzRun::body(const SwapScope& scope) {
  for (int64_t count = random_.below(4); count > 0 && !::testing::Test::HasFailure(); --count) {
    const int64_t action = random_.below(100);
    if (action < 40) {
      if (scope.swap.depth < kDeepest) this->scope(scope.swap.depth + 1);
      continue;
    }
    if (action < 52) {
      log_ << "throw\n";
      throw BodyError();
    }
    if (action < 65) {
      body_changes_.write();
    } else if (action < 75) {
      body_changes_.add();
    } else if (action < 85) {
      if (for_good_ == 0) body_changes_.assign();
    } else if (action < 92) {
      if (scope.swap.mechanism != Mechanism::kForGood) body_changes_.erase(scope.written);
    } else if (for_good_ == 0) {
      body_changes_.cast();
    }
  }
}

TEST(SwapFuzzTest, DoesWhatIsPredictedAndPutsEverythingBack) {
  torch::set_num_threads(1);
  at::globalContext().setUserEnabledMkldnn(false);  // whose LSTM reads weights of any dtype as its own
  const int64_t first = number_from("GRAFT_FUZZ_SEED", 0);
  const int64_t runs = number_from("GRAFT_FUZZ_RUNS", 2000);
  Counts counts;
  for (int64_t seed = first; seed < first + runs; ++seed) {
    FuzzRun run(seed, counts);
    try {
      run.run();
    } catch (const c10::Error& error) {
      ADD_FAILURE() << error.what_without_backtrace();
    }
    ASSERT_FALSE(HasFailure()) << "GRAFT_FUZZ_SEED=" << seed << "\n" << run.log();
  }
  const ComparisonCounts& compared = counts.comparisons;
  std::cout << "installed " << counts.installed << ", unknown names " << counts.index_refusals << ", misfits "
            << counts.value_refusals << ", equal results " << compared.same_results << ", equal failures "
            << compared.same_failures << ", equal gradients " << compared.gradients << ", thrown " << counts.thrown
            << '\n';
  if (runs < 1000) return;
  for (const int64_t count : {counts.installed, counts.index_refusals, counts.value_refusals, compared.same_results,
                              compared.same_failures, compared.gradients, counts.thrown}) {
    EXPECT_GT(count, runs / 40);
  }
}

}  // namespace
}  // namespace graft::testing
