// Written by tools/fit_math.py: do not edit.
#pragma once

#include <array>
#include <cstdint>

namespace tatara::codegen {

// clang-format off
// (e^r - 1 - r) / r^2, on [-0.346747, 0.346747]; error 2^-28.28
inline constexpr std::array<double, 5> kExpF32 = {0.499999934, 0.166665204, 0.041668393, 0.00836874233, 0.00138144231};
// (e^r - 1 - r) / r^2, relative to e^r - 1, on [-0.346747, 0.346747]; error 2^-31.8
inline constexpr std::array<double, 6> kExpm1F32 = {0.500000005, 0.166666669, 0.0416663266, 0.0083332203, 0.00139432429, 0.000199619339};
// (2^r - 1) / r, on [-0.5, 0.5]; error 2^-28.54
inline constexpr std::array<double, 6> kExp2F32 = {0.693147215, 0.240226528, 0.0555031056, 0.00961769275, 0.00134066404, 0.000155947512};
// 2^r, for results of float32, on [-0.5, 0.5]; error 2^-34.53
inline constexpr std::array<double, 8> kExp2LowF64 = {0.99999999996170876, 0.69314718072836356, 0.24022651197903109, 0.05550410353529068, 0.0096180272810089376, 0.0013333922546813621, 0.00015469283882951598, 1.5201919804913119e-5};
// (log(1+f) - f + f^2/2) / f^3, on [-0.292893, 0.414214]; error 2^-27.35
inline constexpr std::array<double, 8> kLogF32 = {0.333333317, -0.250008208, 0.200012246, -0.166233634, 0.142018121, -0.131601818, 0.127612122, -0.0763404906};
// log2(1+f) / f, for results of float32, on [-0.292893, 0.414214]; error 2^-38.49
inline constexpr std::array<double, 14> kLog2LowF64 = {1.4426950408865717, -0.72134752032751097, 0.48089834880313628, -0.36067379313988363, 0.28853879573572805, -0.2404464335375465, 0.20610712198291175, -0.18043674964759679, 0.16021669548210644, -0.14249868044538191, 0.13027533340002462, -0.13462879625780609, 0.13251299847936479, -0.069741045688152864};
// log2(1+f) / f - float32(1 / ln 2), on [-0.292893, 0.414214]; error 2^-27.87
inline constexpr std::array<double, 10> kLog2F32 = {1.92002137e-8, -0.721347352, 0.480898242, -0.360696643, 0.288567347, -0.23961748, 0.204601778, -0.191063373, 0.186168236, -0.10993999};
// log10(1+f) / f - float32(1 / ln 10), on [-0.292893, 0.414214]; error 2^-27.87
inline constexpr std::array<double, 10> kLog10F32 = {-1.01209361e-8, -0.21714719, 0.144764796, -0.108580509, 0.0868674272, -0.0721320489, 0.0615912725, -0.0575158065, 0.0560422234, -0.0330952346};
// (sin r / r - 1) / r^2 over r^2, on [0.0, 0.648666]; error 2^-27.68
inline constexpr std::array<double, 3> kSinF32 = {-0.166666526, 0.00833203651, -0.000194985128};
// (cos r - 1 + r^2/2) / r^4 over r^2, on [0.0, 0.648666]; error 2^-32.64
inline constexpr std::array<double, 3> kCosF32 = {0.0416666422, -0.0013887148, 2.44140314e-5};
// (tan r / r - 1) / r^2 over r^2, on [0.0, 0.648666]; error 2^-28.9
inline constexpr std::array<double, 7> kTanF32 = {0.333333582, 0.133323675, 0.054093754, 0.0211062027, 0.0112943751, -0.000493830558, 0.00466461895};
// (tanh x / x - 1) / x^2 over x^2, on [0.0, 0.4]; error 2^-27.58
inline constexpr std::array<double, 5> kTanhF32 = {-0.333332761, 0.133312746, -0.0537251408, 0.0205898708, -0.00564836472};
// erf x / x - 1 over x^2, on [0.0, 0.81]; error 2^-31.67
inline constexpr std::array<double, 7> kErfNearF32 = {0.128379167, -0.37612635, 0.11283715, -0.0268605084, 0.0052038591, -0.000817563994, 8.51311151e-5};
// log(erfc x), on [0.87, 4.0]; error 2^-34.27
inline constexpr std::array<double, 9> kErfFarF32 = {0.000139390076, -1.12932138, -0.633802753, -0.107678192, 0.0246323732, -0.00392384787, 0.000357630927, -7.73170765e-6, -9.95661439e-7};
// Constants in parts, the largest first.
inline constexpr std::array<double, 3> kHalfPiF32 = {0x1.921fb60000000p+0, -0x1.777a5c0000000p-25, -0x1.ee59da0000000p-50};
inline constexpr std::array<double, 3> kHalfPiF64 = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110};
inline constexpr std::array<double, 3> kHalfPiShort = {0x1.921fb54400000p+0, 0x1.0b4611a600000p-34, 0x1.3198a2e037073p-69};
inline constexpr std::array<double, 2> kLn2F32 = {0x1.62e4000000000p-1, 0x1.7f7d1c0000000p-20};
inline constexpr std::array<double, 2> kLn2F64 = {0x1.62e42ff000000p-1, -0x1.718432a1b0e26p-35};
inline constexpr std::array<double, 2> kLog10Of2F32 = {0x1.3440000000000p-2, 0x1.3509f80000000p-18};
// Bits of 2/pi after a word of zeros.
inline constexpr std::array<uint32_t, 45> kTwoOverPi = {0x00000000, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b6bab, 0xf0cfbc20, 0x9af4361d, 0xa9e39161, 0x5ee61b08, 0x6599855f, 0x14a06840};
// clang-format on

}  // namespace tatara::codegen
