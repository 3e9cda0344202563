// Sixteen-lane vectors on GCC's portable vector types.
//
// Everything compiles and is correct on any target; the dot products, where the speed of the linear
// kernels comes from, use AVX-512 BF16 and VNNI when the compiler targets them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace steelyard {

constexpr int kLanes = 16;

typedef float f32x16 __attribute__((vector_size(64), aligned(64)));
typedef int32_t i32x16 __attribute__((vector_size(64), aligned(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64), aligned(64)));
typedef float f32x16_u __attribute__((vector_size(64), aligned(4)));
typedef int32_t i32x16_u __attribute__((vector_size(64), aligned(4)));

inline f32x16 broadcast(float x) { return x - f32x16{}; }
inline i32x16 broadcast(int32_t x) { return x - i32x16{}; }
inline f32x16 load(const float* p) { return *reinterpret_cast<const f32x16_u*>(p); }
inline i32x16 load(const int32_t* p) { return *reinterpret_cast<const i32x16_u*>(p); }
inline void store(float* p, f32x16 v) { *reinterpret_cast<f32x16_u*>(p) = v; }
inline f32x16 to_float(i32x16 v) { return __builtin_convertvector(v, f32x16); }
inline f32x16 maximum(f32x16 a, f32x16 b) { return a > b ? a : b; }


// a * b + c with one rounding. The build switches implicit contraction off, so that a row's result
// never depends on how the compiler scheduled the kernel that its batch happened to need.
inline f32x16 fmadd(f32x16 a, f32x16 b, f32x16 c) {
#if defined(__AVX512F__)
  return reinterpret_cast<f32x16>(_mm512_fmadd_ps(reinterpret_cast<__m512>(a),
                                                  reinterpret_cast<__m512>(b),
                                                  reinterpret_cast<__m512>(c)));
#else
  f32x16 out;
  for (int i = 0; i < kLanes; ++i) out[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return out;
#endif
}

inline float reduce_add(f32x16 v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps(reinterpret_cast<__m512>(v));
#else
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += v[i];
  return sum;
#endif
}

inline float reduce_max(f32x16 v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(reinterpret_cast<__m512>(v));
#else
  float best = v[0];
  for (int i = 1; i < kLanes; ++i) best = v[i] > best ? v[i] : best;
  return best;
#endif
}

// Rounds to nearest and keeps the low byte of each lane; |v| must be below 128.
inline void store_int8(int8_t* p, f32x16 v) {
#if defined(__AVX512F__)
  __m128i bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(reinterpret_cast<__m512>(v)));
  std::memcpy(p, &bytes, sizeof bytes);
#else
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(__builtin_nearbyintf(v[i]));
#endif
}

// ---- bfloat16 -------------------------------------------------------------------------------

inline float bf16_to_float(uint16_t x) {
  uint32_t bits = static_cast<uint32_t>(x) << 16;
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

// Round to nearest, ties to even; NaN stays NaN.
inline uint16_t bf16_from_float(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline void store_bf16(uint16_t* p, f32x16 v) {
#if defined(__AVX512BF16__)
  __m256bh half = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(v));
  std::memcpy(p, &half, sizeof half);
#else
  for (int i = 0; i < kLanes; ++i) p[i] = bf16_from_float(v[i]);
#endif
}

// acc[lane] += a.lo * b[lane].lo + a.hi * b[lane].hi, where every 32-bit lane holds two bfloat16.
inline f32x16 dot2_bf16(f32x16 acc, i32x16 a, i32x16 b) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<f32x16>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(acc),
                                                   reinterpret_cast<__m512bh>(a),
                                                   reinterpret_cast<__m512bh>(b)));
#else
  const i32x16 high = broadcast(static_cast<int32_t>(0xffff0000u));
  acc = fmadd(reinterpret_cast<f32x16>(a << 16), reinterpret_cast<f32x16>(b << 16), acc);
  return fmadd(reinterpret_cast<f32x16>(a & high), reinterpret_cast<f32x16>(b & high), acc);
#endif
}

// ---- eight-bit integers ---------------------------------------------------------------------

// acc[lane] += sum over four bytes of (unsigned w) * (signed a).
inline i32x16 dot4_int8(i32x16 acc, i32x16 w, i32x16 a) {
#if defined(__AVX512VNNI__)
  return reinterpret_cast<i32x16>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(acc),
                                                      reinterpret_cast<__m512i>(w),
                                                      reinterpret_cast<__m512i>(a)));
#else
  const u32x16 bits = reinterpret_cast<u32x16>(w);
  for (int byte = 0; byte < 4; ++byte) {
    i32x16 left = reinterpret_cast<i32x16>((bits >> (8 * byte)) & 0xffu);
    i32x16 right = (a << (24 - 8 * byte)) >> 24;
    acc += left * right;
  }
  return acc;
#endif
}

// ---- half precision -------------------------------------------------------------------------

inline f32x16 load_f16(const uint16_t* p) {
#if defined(__AVX512F__)
  __m256i half;
  std::memcpy(&half, p, sizeof half);
  return reinterpret_cast<f32x16>(_mm512_cvtph_ps(half));
#else
  f32x16 out;
  _Float16 half[kLanes];
  std::memcpy(half, p, sizeof half);
  for (int i = 0; i < kLanes; ++i) out[i] = static_cast<float>(half[i]);
  return out;
#endif
}

// ---- exponential ----------------------------------------------------------------------------

// 2^x for x <= 0 as 2^n * 2^r with an integer n and |r| <= 1/2; 2^r is its Taylor polynomial, whose
// relative error is 4e-5 for degree 4 (plenty before rounding to bfloat16) and 1.2e-7 for degree 6.
// Vanishes for large negative x, as softmax wants.
template <int Degree>
inline f32x16 exp2_nonpositive(f32x16 x) {
  constexpr float kTaylor[] = {1.0f,           0.693147181f,   0.240226507f,  0.0555041087f,
                               0.00961812911f, 0.00133335581f, 0.000154035304f};
#if defined(__AVX512F__)
  const f32x16 n = reinterpret_cast<f32x16>(
      _mm512_roundscale_ps(reinterpret_cast<__m512>(x), _MM_FROUND_TO_NEAREST_INT));
#else
  const f32x16 shifter = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const f32x16 lowest = broadcast(-126.0f);
  const i32x16 vanishes = x < lowest;
  x = vanishes ? lowest : x;
  const f32x16 shifted = x + shifter;
  const f32x16 n = shifted - shifter;
#endif
  const f32x16 r = x - n;
  f32x16 p = broadcast(kTaylor[Degree]);
  for (int i = Degree - 1; i >= 0; --i) p = fmadd(p, r, broadcast(kTaylor[i]));
#if defined(__AVX512F__)
  return reinterpret_cast<f32x16>(
      _mm512_scalef_ps(reinterpret_cast<__m512>(p), reinterpret_cast<__m512>(n)));
#else
  const i32x16 exponent = (reinterpret_cast<i32x16>(shifted) << 23) + (127 << 23);
  const f32x16 result = p * reinterpret_cast<f32x16>(exponent);
  return vanishes ? f32x16{} : result;
#endif
}

constexpr float kLog2E = 1.44269504f;
constexpr float kLn2 = 0.693147181f;

inline f32x16 silu(f32x16 x) {
  // x * sigmoid(x), written with e^-|x| so that the exponential never overflows.
  const f32x16 zero{};
  const i32x16 negative = x < zero;
  const f32x16 e = exp2_nonpositive<6>((negative ? x : -x) * kLog2E);
  const f32x16 numerator = negative ? e : broadcast(1.0f);
  return x * numerator / (e + 1.0f);
}

}  // namespace steelyard
