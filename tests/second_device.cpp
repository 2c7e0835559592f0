// A device called "second", for tests: its memory is ordinary, but no kernel of the CPU is given its tensors. Each
// operation copies them to the CPU, runs there and copies the results back; tensors of both devices in one operation
// are an error, as on a GPU.
// Follows https://docs.pytorch.org/tutorials/advanced/privateuseone.html (torch's own example is torch_openreg).

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/extension.h>

#include <mutex>
#include <set>

namespace {

constexpr auto kSecond = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kSecond, 0);

struct Memory : c10::Allocator {
  explicit Memory(c10::Device device) : device_(device) {}
  c10::DataPtr allocate(size_t size) override {
    void* data = c10::alloc_cpu(size);
    return {data, data, &c10::free_cpu, device_};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
  void copy_data(void* to, const void* from, size_t count) const override { default_copy_data(to, from, count); }
  c10::Device device_;
};
Memory memory(kDevice);
REGISTER_ALLOCATOR(kSecond, &memory);

// Pinned memory is memory of the CPU that is noted down.
std::mutex pinned_mutex;
std::set<const void*> pinned;
void unpin(void* data) {
  { std::lock_guard<std::mutex> lock(pinned_mutex); pinned.erase(data); }
  c10::free_cpu(data);
}
struct PinnedMemory : Memory {
  PinnedMemory() : Memory(c10::Device(c10::DeviceType::CPU)) {}
  c10::DataPtr allocate(size_t size) override {
    void* data = c10::alloc_cpu(size);
    { std::lock_guard<std::mutex> lock(pinned_mutex); pinned.insert(data); }
    return {data, data, &unpin, device_};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &unpin; }
};
PinnedMemory pinned_memory;

struct Guard final : c10::impl::NoOpDeviceGuardImpl<kSecond> {
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return getStream(kDevice); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isPinnedPtr(const void* data) const override {
    std::lock_guard<std::mutex> lock(pinned_mutex);
    return pinned.count(data) > 0;
  }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    c10::DataPtr fresh = memory.allocate(size);
    std::memcpy(fresh.get(), storage.data(), std::min(size, storage.nbytes()));
    storage.set_data_ptr_noswap(std::move(fresh));
    storage.unsafeGetStorageImpl()->set_nbytes(size);
  }
};

at::Tensor on_cpu(const at::Tensor& tensor) {  // the same memory, seen by the CPU
  if (tensor.is_cpu()) return tensor;
  auto options = tensor.options().device(at::kCPU);
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), options);
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool) {
  on_cpu(to).copy_(on_cpu(self.resolve_conj()));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  if (self.sizes() != to.sizes()) to.resize_(self.sizes());
  return copy_from(self, to, false);
}

c10::ScalarType known(std::optional<at::ScalarType> dtype) {  // Macs have no float64 either
  auto found = c10::dtype_or_default(dtype);
  TORCH_CHECK_TYPE(found != at::kDouble && found != at::kComplexDouble, "second has no float64");
  return found;
}

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   known(dtype), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &memory,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), known(dtype));
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                           offset ? std::optional<int64_t>(offset->expect_int()) : std::nullopt);
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  return at::native::resize_(self, C10_AS_INTARRAYREF_SLOW(size), format);
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage, c10::SymInt offset, c10::SymIntArrayRef size,
                        c10::SymIntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(storage), offset.expect_int(), C10_AS_INTARRAYREF_SLOW(size),
                                      C10_AS_INTARRAYREF_SLOW(stride));
}

void need_second(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK(!tensor.defined() || !tensor.is_cpu(), "Expected all tensors to be on the same device, but found one on ",
              "cpu beside some on second, in ", name);
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
                       bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  for (const auto& tensor : {input, weight, bias.value_or(at::Tensor())}) need_second(tensor, "convolution");
  auto cpu_bias = bias && bias->defined() ? std::optional<at::Tensor>(bias->cpu()) : std::nullopt;
  return at::convolution_symint(input.cpu(), weight.cpu(), cpu_bias, stride, padding, dilation, transposed,
                                output_padding, groups).to(kDevice);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
    c10::SymInt groups, std::array<bool, 3> mask) {
  for (const auto& tensor : {grad, input, weight}) need_second(tensor, "convolution_backward");
  std::vector<c10::SymInt> biases{weight.sym_size(transposed ? 1 : 0)};
  if (transposed) biases[0] = biases[0] * groups;
  auto [one, two, three] = at::convolution_backward_symint(
      grad.cpu(), input.cpu(), weight.cpu(), mask[2] ? at::OptionalSymIntArrayRef(biases) : std::nullopt, stride,
      padding, dilation, transposed, output_padding, groups, mask);
  auto back = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.to(kDevice) : tensor; };
  return {back(one), back(two), back(three)};
}

// A number that torch made a tensor of, or a tensor without axes, is taken from the CPU, as GPUs take it.
void check(const at::Tensor& tensor, const char* name, bool takes_numbers) {
  if (tensor.defined() && tensor.is_cpu() && !(takes_numbers && tensor.dim() == 0)) need_second(tensor, name);
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& name = op.schema().name();
  auto arguments = torch::jit::last(stack, op.schema().arguments().size());
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor()) check(argument.toTensor(), name.c_str(), true);
    if (argument.isTensorList())
      for (const at::Tensor& tensor : argument.toTensorVector()) check(tensor, name.c_str(), false);
    if (argument.isOptionalTensorList())
      for (const std::optional<at::Tensor>& tensor : argument.toOptionalTensorVector())
        if (tensor) check(*tensor, name.c_str(), false);
  }
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &as_strided);
  m.impl("view", &view);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("resize_", &resize);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("convolution_overrideable", &convolution);
  m.impl("convolution_backward_overrideable", &convolution_backward);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("register_hooks", [] { at::RegisterPrivateUse1HooksInterface(new Hooks()); });
}
