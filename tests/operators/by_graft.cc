#include "tests/operators/by_graft.h"

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/jvp.h"
#include "tests/operators/tensor_lists.h"

namespace graft::testing {

Tensor ByGraft::call(const TensorDict& params, const Tensors& inputs, const TensorDict& buffers) const {
  subject_.seed();
  return subject_.op().is_module() ? functional_call(*subject_.nets()[0], {params, buffers}, inputs)
                                   : subject_.op().function(inputs);
}

Tensor ByGraft::call(const Variables& variables, const Tensors& of, const TensorDict& buffers) const {
  return call(variables.params, concatenated(variables.inputs, subject_.fixed(of)), buffers);
}

Tensor ByGraft::loss(const Variables& variables, const Tensors& of, const TensorDict& buffers) const {
  return (call(variables, of, buffers) * subject_.weights()).sum();
}

Variables ByGraft::gradients_of(const TensorDict& params, const Tensors& inputs, const TensorDict& buffers) const {
  const auto f = [&](const Variables& variables) { return loss(variables, inputs, buffers); };
  return grad(f)(Variables{params, subject_.differentiable(inputs)});
}

Tensor ByGraft::push(const TensorDict& params, const Tensors& inputs, const TensorDict& buffers,
                     const Variables& along) const {
  const auto f = [&](const Variables& variables) { return call(variables, inputs, buffers); };
  return jvp(f, Variables{params, subject_.differentiable(inputs)}, along).second;
}

}  // namespace graft::testing
