// What the main of each benchmark does.
#pragma once

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

namespace graft {

/// Runs the registered benchmarks that the arguments name, on one thread. \returns the exit status.
inline int run_benchmarks(int argc, char** argv) {
  at::set_num_threads(1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace graft
