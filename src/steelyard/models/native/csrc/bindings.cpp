// What Python sees: packed matrices, KV pages and a step's batch. Checks shapes, nothing else.
//
// Kernels share scratch memory and one thread pool, so a mutex lets one run at a time; the
// interpreter lock is released meanwhile.
#include "arena.h"
#include "kernels.h"

#include <pybind11/numpy.h>
#include <torch/extension.h>

#include <mutex>
#include <optional>
#include <vector>

namespace steelyard {
namespace {

using at::Tensor;

std::mutex kernel_mutex;

struct KernelScope {
  py::gil_scoped_release unlocked;
  std::lock_guard<std::mutex> exclusive{kernel_mutex};
};

template <class T>
const T* pointer(const std::optional<Tensor>& tensor) {
  return tensor ? static_cast<const T*>(tensor->const_data_ptr()) : nullptr;
}

void check(const Tensor& tensor, at::ScalarType type, const char* name) {
  TORCH_CHECK(tensor.device().is_cpu() && tensor.is_contiguous(), name, " must be contiguous on the CPU");
  TORCH_CHECK(tensor.scalar_type() == type, name, " must be ", type, ", not ", tensor.scalar_type());
}

// Zeroed bytes on huge pages.
Tensor allocate(int64_t bytes) {
  std::shared_ptr<uint8_t> block = Arena::instance().allocate(bytes);
  uint8_t* data = block.get();
  return at::from_blob(data, {bytes}, [block](void*) {}, at::kByte);
}

// ---- packed matrices ------------------------------------------------------------------------

class PackedMatrix {
 public:
  PackedMatrix(Tensor data, std::optional<Tensor> bias, Format format, int64_t outputs,
               int64_t width)
      : data_(std::move(data)), bias_(std::move(bias)) {
    if (bias_) {
      check(*bias_, at::kFloat, "bias");
      TORCH_CHECK(bias_->numel() == outputs, "bias must have one value per output");
    }
    view_ = {format, outputs, width, data_.const_data_ptr<uint8_t>(), pointer<float>(bias_)};
    TORCH_CHECK(data_.numel() == view_.tiles() * view_.tile_bytes(), "packed data has a wrong size");
  }

  // y [rows, outputs] = rms_norm(x, norm) W^T + bias
  Tensor linear(const Tensor& x, const std::optional<Tensor>& norm, double eps) const {
    check_rows(x, norm);
    Tensor out = at::empty({x.size(0), view_.outputs}, x.options());
    run(Finish::store, x, norm, eps, out);
    return out;
  }

  // out [rows, outputs] += x W^T + bias
  void linear_add(const Tensor& x, Tensor out) const {
    check_rows(x, std::nullopt);
    check(out, at::kFloat, "out");
    TORCH_CHECK(out.size(0) == x.size(0) && out.size(1) == view_.outputs, "out has a wrong shape");
    run(Finish::add, x, std::nullopt, 0.0, out);
  }

  // y [rows, outputs / 2] = silu(gate) * up, for a matrix of interleaved gates and ups
  Tensor linear_gate(const Tensor& x, const std::optional<Tensor>& norm, double eps) const {
    check_rows(x, norm);
    TORCH_CHECK(view_.outputs % kTile == 0 && !bias_, "gated matrices come in whole tiles, unbiased");
    Tensor out = at::empty({x.size(0), view_.outputs / 2}, x.options());
    run(Finish::gate, x, norm, eps, out);
    return out;
  }

  // Rows of the matrix as float [ids, width]: the embedding that shares its weights with the head.
  Tensor rows(const Tensor& ids) const {
    check(ids, at::kLong, "ids");
    Tensor out = at::empty({ids.size(0), view_.width}, at::kFloat);
    const int64_t* id = ids.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < ids.size(0); ++i) {
      TORCH_CHECK(id[i] >= 0 && id[i] < view_.outputs, "id ", id[i], " is out of range");
      unpack_row(view_, id[i], out.mutable_data_ptr<float>() + i * view_.width);
    }
    return out;
  }

  int64_t bytes() const { return data_.numel(); }
  int64_t outputs() const { return view_.outputs; }
  int64_t width() const { return view_.width; }

 private:
  void check_rows(const Tensor& x, const std::optional<Tensor>& norm) const {
    check(x, at::kFloat, "x");
    TORCH_CHECK(x.dim() == 2 && x.size(1) == view_.width, "x must be [rows, ", view_.width, "]");
    if (norm) {
      check(*norm, at::kFloat, "norm");
      TORCH_CHECK(norm->numel() == view_.width, "norm must have one value per column");
    }
  }

  void run(Finish finish, const Tensor& x, const std::optional<Tensor>& norm, double eps,
           Tensor& out) const {
    KernelScope scope;
    steelyard::linear(view_, finish, x.const_data_ptr<float>(), x.size(0), pointer<float>(norm),
                      static_cast<float>(eps), out.mutable_data_ptr<float>());
  }

  Tensor data_;
  std::optional<Tensor> bias_;
  Matrix view_;
};

PackedMatrix pack(Format format, const Tensor& values, const std::optional<Tensor>& scale,
                  const std::optional<Tensor>& minimum, std::optional<Tensor> bias) {
  TORCH_CHECK(values.dim() == 2 && values.is_contiguous(), "values must be a contiguous matrix");
  const int64_t outputs = values.size(0), width = values.size(1);
  TORCH_CHECK(width % kGroup == 0, "the width must be a multiple of ", kGroup);
  const auto check_groups = [&](const std::optional<Tensor>& tensor, const char* name) {
    TORCH_CHECK(tensor, name, " is missing");
    check(*tensor, at::kHalf, name);
    TORCH_CHECK(tensor->size(0) == outputs && tensor->size(1) == width / kGroup, name,
                " must be [outputs, width / ", kGroup, "]");
  };
  if (format == Format::bf16) check(values, at::kBFloat16, "values");
  if (format == Format::int8) check(values, at::kChar, "values");
  if (format == Format::int4) check(values, at::kByte, "values");
  if (format != Format::bf16) check_groups(scale, "scale");
  if (format == Format::int4) check_groups(minimum, "minimum");
  Matrix shape{format, outputs, width, nullptr, nullptr};
  Tensor data = allocate(shape.tiles() * shape.tile_bytes());
  {
    KernelScope scope;
    pack_matrix(shape, values.const_data_ptr(), pointer<uint16_t>(scale),
                pointer<uint16_t>(minimum), data.mutable_data_ptr<uint8_t>());
  }
  return PackedMatrix(std::move(data), std::move(bias), format, outputs, width);
}

// ---- attention --------------------------------------------------------------------------------

using Indices = py::array_t<int32_t, py::array::c_style>;

// Keeps a step's arrays alive and hands kernels a view of them.
class StepBatch {
 public:
  StepBatch(Indices positions, Indices starts, Indices contexts, Indices rows, Indices table,
            int64_t block_tokens)
      : arrays_{std::move(positions), std::move(starts), std::move(contexts), std::move(rows),
                std::move(table)} {
    const int64_t tokens = arrays_[0].size(), sequences = arrays_[2].size();
    TORCH_CHECK(arrays_[1].size() == sequences + 1, "one start per sequence and the end");
    TORCH_CHECK(arrays_[3].size() == sequences, "one row per sequence");
    TORCH_CHECK(arrays_[4].ndim() == 2 && block_tokens > 0, "the block table is a matrix");
    const auto data = [&](int i) { return arrays_[i].data(); };
    slots_.resize(tokens);
    view_ = {tokens,  sequences, data(0), slots_.data(),       data(1),
             data(2), data(3),   data(4), arrays_[4].shape(1)};
    find_slots(block_tokens);
  }

  const Batch& view() const { return view_; }

 private:
  // Where each token's keys and values go: block * block_tokens + offset.
  void find_slots(int64_t block_tokens) {
    TORCH_CHECK(view_.starts[0] == 0 && view_.starts[view_.sequences] == view_.tokens, "starts");
    for (int64_t s = 0; s < view_.sequences; ++s) {
      TORCH_CHECK(view_.rows[s] >= 0 && view_.rows[s] < arrays_[4].shape(0), "row out of range");
      const int32_t* blocks = view_.table + view_.rows[s] * view_.table_stride;
      TORCH_CHECK(view_.contexts[s] <= view_.table_stride * block_tokens, "context out of range");
      for (int32_t t = view_.starts[s]; t < view_.starts[s + 1]; ++t) {
        const int32_t position = view_.positions[t];
        TORCH_CHECK(position >= 0 && position < view_.contexts[s], "position out of range");
        slots_[t] = static_cast<int32_t>(blocks[position / block_tokens] * block_tokens +
                                         position % block_tokens);
      }
    }
  }

  Indices arrays_[5];
  std::vector<int32_t> slots_;
  Batch view_;
};

// The pages of one layer. bfloat16 or float; see pages.h for their layout.
class KVPages {
 public:
  KVPages(Tensor pages, int64_t query_heads, int64_t kv_heads, int64_t head_size,
          int64_t block_tokens)
      : pages_(std::move(pages)), shape_{query_heads, kv_heads, head_size, block_tokens} {
    TORCH_CHECK(head_size == 64 || head_size == 128, "head size must be 64 or 128");
    TORCH_CHECK(block_tokens % kSubBlock == 0, "block_tokens must be a multiple of ", kSubBlock);
    TORCH_CHECK(kv_heads > 0 && query_heads % kv_heads == 0, "query heads come in whole groups");
    TORCH_CHECK(pages_.is_contiguous() && pages_.numel() % shape_.block_elements() == 0,
                "pages must hold whole blocks");
    TORCH_CHECK(is_float() || pages_.scalar_type() == at::kBFloat16, "pages are float or bfloat16");
  }

  // qkv [tokens, (query_heads + 2 kv_heads) * head_size] in float, overwritten.
  // Rotates, stores keys and values, attends: out [tokens, query_heads * head_size].
  Tensor attend(const StepBatch& batch, Tensor qkv, const Tensor& cosine, const Tensor& sine,
                const std::optional<Tensor>& query_norm, const std::optional<Tensor>& key_norm,
                double norm_eps, double scale, int64_t window) const {
    check(qkv, at::kFloat, "qkv");
    check(cosine, at::kFloat, "cosine");
    check(sine, at::kFloat, "sine");
    const Batch& view = batch.view();
    const int64_t width = (shape_.query_heads + 2 * shape_.kv_heads) * shape_.head_size;
    TORCH_CHECK(qkv.size(0) == view.tokens && qkv.size(1) == width, "qkv has a wrong shape");
    const Rotary rotary{cosine.const_data_ptr<float>(), sine.const_data_ptr<float>(),
                        pointer<float>(query_norm), pointer<float>(key_norm),
                        static_cast<float>(norm_eps)};
    Tensor queries = at::empty({view.tokens, shape_.query_heads * shape_.head_size}, pages_.options());
    Tensor out = at::empty_like(queries, at::kFloat);
    KernelScope scope;
    rotate_and_store(shape_, view, rotary, is_float(), qkv.mutable_data_ptr<float>(),
                     queries.mutable_data_ptr(), pages_.mutable_data_ptr());
    run(view, queries, out.mutable_data_ptr<float>(), nullptr, scale, window);
    return out;
  }

  // queries [tokens, query_heads, head_size] in the pages' type, already rotated.
  // Returns out [tokens, query_heads, head_size] and log-sum-exp [tokens, query_heads], in float.
  std::pair<Tensor, Tensor> paged_attention(const StepBatch& batch, const Tensor& queries,
                                            double scale, int64_t window) const {
    check(queries, pages_.scalar_type(), "queries");
    const Batch& view = batch.view();
    TORCH_CHECK(queries.numel() == view.tokens * shape_.query_heads * shape_.head_size,
                "queries have a wrong shape");
    Tensor out = at::empty({view.tokens, shape_.query_heads, shape_.head_size}, at::kFloat);
    Tensor lse = at::empty({view.tokens, shape_.query_heads}, at::kFloat);
    KernelScope scope;
    run(view, queries, out.mutable_data_ptr<float>(), lse.mutable_data_ptr<float>(), scale, window);
    return {out, lse};
  }

 private:
  bool is_float() const { return pages_.scalar_type() == at::kFloat; }

  void run(const Batch& view, const Tensor& queries, float* out, float* lse, double scale,
           int64_t window) const {
    attention(shape_, view, is_float(), queries.const_data_ptr(), pages_.const_data_ptr(),
              static_cast<float>(scale), window, out, lse);
  }

  Tensor pages_;
  HeadShape shape_;
};

}  // namespace
}  // namespace steelyard

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace steelyard;
  m.attr("fast_dot_bf16") = fast_dot_bf16;
  m.attr("fast_dot_int8") = fast_dot_int8;
  m.attr("tile_outputs") = kTile;
  m.attr("group_values") = kGroup;
  m.attr("sub_block_tokens") = kSubBlock;
  m.def("set_threads", [](int threads) { set_threads(threads); });
  m.def("allocate", &allocate, py::arg("count"));
  m.def("threads", [] { return threads(); });

  py::enum_<Format>(m, "Format")
      .value("bf16", Format::bf16)
      .value("int8", Format::int8)
      .value("int4", Format::int4);

  py::class_<PackedMatrix>(m, "PackedMatrix")
      .def("linear", &PackedMatrix::linear, py::arg("x"), py::arg("norm") = py::none(),
           py::arg("eps") = 0.0)
      .def("linear_add", &PackedMatrix::linear_add, py::arg("x"), py::arg("out"))
      .def("linear_gate", &PackedMatrix::linear_gate, py::arg("x"), py::arg("norm") = py::none(),
           py::arg("eps") = 0.0)
      .def("rows", &PackedMatrix::rows, py::arg("ids"))
      .def_property_readonly("bytes", &PackedMatrix::bytes)
      .def_property_readonly("outputs", &PackedMatrix::outputs)
      .def_property_readonly("width", &PackedMatrix::width);
  m.def("pack", &pack, py::arg("layout"), py::arg("values"), py::arg("scale") = py::none(),
        py::arg("minimum") = py::none(), py::arg("bias") = py::none());

  py::class_<StepBatch>(m, "StepBatch")
      .def(py::init<Indices, Indices, Indices, Indices, Indices, int64_t>(), py::arg("positions"),
           py::arg("starts"), py::arg("contexts"), py::arg("rows"), py::arg("table"),
           py::arg("block_tokens"));
  py::class_<KVPages>(m, "KVPages")
      .def(py::init<Tensor, int64_t, int64_t, int64_t, int64_t>(), py::arg("pages"),
           py::arg("query_heads"), py::arg("kv_heads"), py::arg("head_size"),
           py::arg("block_tokens"))
      .def("attend", &KVPages::attend, py::arg("batch"), py::arg("qkv"), py::arg("cosine"),
           py::arg("sine"), py::arg("query_norm") = py::none(), py::arg("key_norm") = py::none(),
           py::arg("norm_eps") = 0.0, py::arg("scale") = 1.0, py::arg("window") = 0)
      .def("paged_attention", &KVPages::paged_attention, py::arg("batch"), py::arg("queries"),
           py::arg("scale"), py::arg("window") = 0);
}
