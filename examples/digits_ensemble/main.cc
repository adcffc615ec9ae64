// Trains an ensemble of small networks on handwritten digits, all members at once, and shows what it learned.
//
//   ./bazelw run //examples:digits_ensemble -- --members=16 --loop
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "examples/digits_ensemble/digits.h"
#include "examples/digits_ensemble/flags.h"
#include "examples/digits_ensemble/mlp.h"
#include "examples/digits_ensemble/options.h"
#include "examples/digits_ensemble/picture.h"
#include "examples/digits_ensemble/progress.h"
#include "examples/digits_ensemble/report.h"
#include "examples/digits_ensemble/train_ensemble.h"
#include "examples/digits_ensemble/train_loop.h"
#include "examples/digits_ensemble/training.h"

namespace digits_ensemble {
namespace {

void write_text(const std::string& text, const std::filesystem::path& path) {
  std::ofstream file(path);
  file << text;
  file.close();
  TORCH_CHECK(file, path.string(), ": the file cannot be written");
}

void print_help() {
  std::cout << "Trains an ensemble of small networks on handwritten digits, all members at once.\n\n";
  print_flags(std::cout);
}

void run(const Options& options) {
  at::set_num_threads(options.threads);
  const Split split = split_digits(read_digits(options.data), options.seed);
  const std::vector<Mlp> members = make_members(options.members, options.width, options.seed);
  TrainingOptions training = {.epochs = options.epochs, .batch = options.batch, .seed = options.seed};

  MlpEnsemble ensemble(members);
  TrainingLog log;
  double seconds = 0;
  {
    const ScopedTimer timer(&seconds);
    Progress progress(stdout, options.epochs, options.members * split.train.labels.size(0));
    log = train_ensemble(ensemble, split, training, progress);
  }
  const at::Tensor probabilities = predict(ensemble, split.test.pixels);
  Report report = make_report(probabilities, split.test.labels, seconds);
  if (options.loop) {
    training.epochs = log.losses.size(0);
    std::cout << "The same " << options.members << " members, one by one ..." << std::endl;
    report.loop = compare(log, train_loop(members, split.train, training));
  }
  print_table(report, std::cout);

  std::filesystem::create_directories(options.out);
  ensemble.save((options.out / "ensemble.graft").string());
  draw_disagreements(split.test, probabilities, options.out / "disagreement.png");
  write_text(to_json(report), options.out / "metrics.json");
  std::cout << "\nWritten to " << options.out.string() << ": ensemble.graft, disagreement.png, metrics.json\n";
}

}  // namespace
}  // namespace digits_ensemble

int main(int argc, char** argv) {
  try {
    const std::optional<digits_ensemble::Options> options = digits_ensemble::parse_options(argc, argv);
    options ? digits_ensemble::run(*options) : digits_ensemble::print_help();
    return 0;
  } catch (const c10::Error& error) {
    std::cerr << "digits_ensemble: " << error.what_without_backtrace() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "digits_ensemble: " << error.what() << "\n";
  }
  return 1;
}
