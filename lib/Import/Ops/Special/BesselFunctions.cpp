//===- BesselFunctions.cpp - Bessel functions of orders 0 and 1 -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Near zero and far from it each has an expansion of its own. The coefficients are those of
// Moshier, Methods and Programs for Mathematical Functions (the Cephes library): Chebyshev series
// of the modified functions, rational functions of the others. PyTorch drops the leading one of
// some denominators of the latter, and is wrong in the fifth digit around 5 because of it.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Special/SpecialFunctions.h"

using namespace llvm;
using namespace memopt::pt2;

//===----------------------------------------------------------------------===//
// Coefficients, the highest first
//===----------------------------------------------------------------------===//

constexpr double kI0Near[] = {
    -4.4153416464793393795e-18, 3.33079451882223809783e-17,  -2.43127984654795469359e-16,
    1.71539128555513303061e-15, -1.16853328779934516808e-14, 7.67618549860493561688e-14,
    -4.8564467831119294609e-13, 2.95505266312963983461e-12,  -1.72682629144155570723e-11,
    9.67580903537323691224e-11, -5.18979560163526290666e-10, 2.65982372468238665035e-9,
    -1.30002500998624804212e-8, 6.04699502254191894932e-8,   -2.67079385394061173391e-7,
    1.11738753912010371815e-6,  -4.41673835845875056359e-6,  1.64484480707288970893e-5,
    -5.75419501008210370398e-5, 1.88502885095841655729e-4,   -5.76375574538582365885e-4,
    1.63947561694133579842e-3,  -4.3243099950505759443e-3,   1.05464603945949983183e-2,
    -2.37374148058994688156e-2, 4.93052842396707084878e-2,   -9.4901097048047644421e-2,
    1.71620901522208775349e-1,  -3.04682672343198398683e-1,  6.76795274409476084995e-1};
constexpr double kI0Far[] = {
    -7.23318048787475395456e-18, -4.83050448594418207126e-18, 4.46562142029675999901e-17,
    3.4612228676974610931e-17,   -2.82762398051658348494e-16, -3.42548561967721913462e-16,
    1.7725601330565263836e-15,   3.81168066935262242075e-15,  -9.5548466988283076487e-15,
    -4.15056934728722208663e-14, 1.54008621752140982691e-14,  3.85277838274214270114e-13,
    7.18012445138366623367e-13,  -1.79417853150680611778e-12, -1.32158118404477131188e-11,
    -3.14991652796324136454e-11, 1.18891471078464383424e-11,  4.9406023882249695891e-10,
    3.39623202570838634515e-9,   2.26666899049817806459e-8,   2.04891858946906374183e-7,
    2.89137052083475648297e-6,   6.88975834691682398426e-5,   3.3691164782556940899e-3,
    8.04490411014108831608e-1};
constexpr double kI1Near[] = {
    2.77791411276104639959e-18,  -2.11142121435816608115e-17, 1.55363195773620046921e-16,
    -1.10559694773538630805e-15, 7.6006842947354069341e-15,   -5.04218550472791168711e-14,
    3.22379336594557470981e-13,  -1.9839743977649437152e-12,  1.17361862988909016308e-11,
    -6.66348972350202774223e-11, 3.62559028155211703701e-10,  -1.8872497517228292879e-9,
    9.38153738649577178388e-9,   -4.44505912879632808065e-8,  2.00329475355213526229e-7,
    -8.56872026469545474066e-7,  3.47025130813767847674e-6,   -1.32731636560394358279e-5,
    4.78156510755005422638e-5,   -1.61760815825896745588e-4,  5.12285956168575772895e-4,
    -1.51357245063125314899e-3,  4.15642294431288815669e-3,   -1.05640848946261981558e-2,
    2.47264490306265168283e-2,   -5.29459812080949914269e-2,  1.02643658689847095384e-1,
    -1.76416518357834055153e-1,  2.52587186443633654823e-1};
constexpr double kI1Far[] = {
    7.51729631084210481353e-18,  4.41434832307170791151e-18,  -4.65030536848935832153e-17,
    -3.2095259219934239598e-17,  2.96262899764595013876e-16,  3.30820231092092828324e-16,
    -1.88035477551078244854e-15, -3.81440307243700780478e-15, 1.04202769841288027642e-14,
    4.27244001671195135429e-14,  -2.10154184277266431302e-14, -4.08355111109219731823e-13,
    -7.19855177624590851209e-13, 2.03562854414708950722e-12,  1.41258074366137813316e-11,
    3.25260358301548823856e-11,  -1.8974958123505412345e-11,  -5.58974346219658380687e-10,
    -3.83538038596423702205e-9,  -2.63146884688951950684e-8,  -2.51223623787020892529e-7,
    -3.88256480887769039346e-6,  -1.10588938762623716291e-4,  -9.76109749136146840777e-3,
    7.78576235018280120474e-1};
constexpr double kK0Near[] = {1.37446543561352307156e-16, 4.25981614279661018399e-14,
                              1.03496952576338420167e-11, 1.90451637722020886025e-9,
                              2.53479107902614945675e-7,  2.28621210311945178607e-5,
                              1.26461541144692592338e-3,  3.59799365153615016266e-2,
                              3.44289899924628486886e-1,  -5.3532739323390276872e-1};
constexpr double kK0Far[] = {
    5.30043377268626276149e-18,  -1.64758043015242134646e-17, 5.21039150503902756861e-17,
    -1.67823109680541210385e-16, 5.51205597852431940784e-16,  -1.8485933773437790144e-15,
    6.34007647740507060557e-15,  -2.22751332699166985548e-14, 8.032890775363575211e-14,
    -2.98009692317273043925e-13, 1.14034058820847496303e-12,  -4.51459788337394416547e-12,
    1.85594911495471785253e-11,  -7.95748924447710747776e-11, 3.57739728140030116597e-10,
    -1.69753450938905987466e-9,  8.57403401741422608519e-9,   -4.66048989768794782956e-8,
    2.76681363944501510342e-7,   -1.83175552271911948767e-6,  1.39498137188764993662e-5,
    -1.28495495816278026384e-4,  1.56988388573005337491e-3,   -3.14481013119645005427e-2,
    2.44030308206595545468};
constexpr double kK1Near[] = {
    -7.02386347938628759343e-18, -2.42744985051936593393e-15, -6.66690169419932900609e-13,
    -1.4114883926335277611e-10,  -2.21338763073472585583e-8,  -2.43340614156596823496e-6,
    -1.73028895751305206302e-4,  -6.97572385963986435018e-3,  -1.22611180822657148235e-1,
    -3.53155960776544875667e-1,  1.52530022733894777053};
constexpr double kK1Far[] = {
    -5.75674448366501715755e-18, 1.79405087314755922667e-17,  -5.68946255844285935196e-17,
    1.8380935443666388007e-16,   -6.05704724837331885336e-16, 2.03870316562433424052e-15,
    -7.01983709041831346144e-15, 2.47715442448130437068e-14,  -8.97670518232499435011e-14,
    3.34841966607842919884e-13,  -1.2891739609510289068e-12,  5.139639673481730251e-12,
    -2.12996783842756842877e-11, 9.21831518760500529508e-11,  -4.1903547593418964875e-10,
    2.01504975519703286596e-9,   -1.0345762465678097026e-8,   5.74108412545004946722e-8,
    -3.50196060308781257119e-7,  2.40648494783721712015e-6,   -1.93619797416608296024e-5,
    1.95215518471351631108e-4,   -2.8578168596227793868e-3,   1.03923736576817238437e-1,
    2.72062619048444266945};

constexpr double kPhaseP0[] = {7.96936729297347051624e-4, 8.28352392107440799803e-2,
                               1.23953371646414299388,    5.4472500305876877509,
                               8.74716500199817011941,    5.30324038235394892183,
                               9.99999999999999997821e-1};
constexpr double kPhaseQ0[] = {9.24408810558863637013e-4, 8.56288474354474431428e-2,
                               1.25352743901058953537,    5.47097740330417105182,
                               8.76190883237069594232,    5.30605288235394617618,
                               1.00000000000000000218};
constexpr double kTiltP0[] = {-1.13663838898469149931e-2, -1.28252718670509318512,
                              -1.95539544257735972385e1,  -9.32060152123768231369e1,
                              -1.77681167980488050595e2,  -1.47077505154951170175e2,
                              -5.1410532676659933022e1,   -6.05014350600728481186};
constexpr double kTiltQ0[] = {1.0,
                              6.43178256118178023184e1,
                              8.56430025976980587198e2,
                              3.88240183605401609683e3,
                              7.24046774195652478189e3,
                              5.93072701187316984827e3,
                              2.06209331660327847417e3,
                              2.42005740240291393179e2};
constexpr double kJ0P[] = {-4.79443220978201773821e9, 1.95617491946556577543e12,
                           -2.49248344360967716204e14, 9.70862251047306323952e15};
constexpr double kJ0Q[] = {1.0,
                           4.99563147152651017219e2,
                           1.73785401676374683123e5,
                           4.84409658339962045305e7,
                           1.11855537045356834862e10,
                           2.11277520115489217587e12,
                           3.10518229857422583814e14,
                           3.18121955943204943306e16,
                           1.71086294081043136091e18};
constexpr double kY0P[] = {1.55924367855235737965e4,  -1.46639295903971606143e7,
                           5.43526477051876500413e9,  -9.82136065717911466409e11,
                           8.75906394395366999549e13, -3.46628303384729719441e15,
                           4.42733268572569800351e16, -1.84950800436986690637e16};
constexpr double kY0Q[] = {1.0,
                           1.04128353664259848412e3,
                           6.26107330137134956842e5,
                           2.68919633393814121987e8,
                           8.64002487103935000337e10,
                           2.02979612750105546709e13,
                           3.17157752842975028269e15,
                           2.50596256172653059228e17};
constexpr double kPhaseP1[] = {7.62125616208173112003e-4, 7.31397056940917570436e-2,
                               1.12719608129684925192,    5.11207951146807644818,
                               8.42404590141772420927,    5.21451598682361504063,
                               1.00000000000000000254};
constexpr double kPhaseQ1[] = {5.71323128072548699714e-4, 6.88455908754495404082e-2,
                               1.10514232634061696926,    5.07386386128601488557,
                               8.39985554327604159757,    5.20982848682361821619,
                               9.99999999999999997461e-1};
constexpr double kTiltP1[] = {5.10862594750176621635e-2, 4.9821387295123344942,
                              7.58238284132545283818e1,  3.667796093601507778e2,
                              7.10856304998926107277e2,  5.97489612400613639965e2,
                              2.11688757100572135698e2,  2.52070205858023719784e1};
constexpr double kTiltQ1[] = {1.0,
                              7.42373277035675149943e1,
                              1.05644886038262816351e3,
                              4.98641058337653607651e3,
                              9.56231892404756170795e3,
                              7.9970416044735068365e3,
                              2.826192785176390966e3,
                              3.36093607810698293419e2};
constexpr double kJ1P[] = {-8.99971225705559398224e8, 4.52228297998194034323e11,
                           -7.27494245221818276015e13, 3.68295732863852883286e15};
constexpr double kJ1Q[] = {1.0,
                           6.20836478118054335476e2,
                           2.56987256757748830383e5,
                           8.35146791431949253037e7,
                           2.21511595479792499675e10,
                           4.74914122079991414898e12,
                           7.84369607876235854894e14,
                           8.95222336184627338078e16,
                           5.32278620332680085395e18};
constexpr double kY1P[] = {1.2632047479017802644e9,   -6.47355876379160291031e11,
                           1.14509511541823727583e14, -8.12770255501325109621e15,
                           2.02439475713594898196e17, -7.78877196265950026825e17};
constexpr double kY1Q[] = {1.0,
                           5.94301592346128195359e2,
                           2.35564092943068577943e5,
                           7.3481194445972170566e7,
                           1.87601316108706159478e10,
                           3.88231277496238566008e12,
                           6.20557727146953693363e14,
                           6.87141087355300489866e16,
                           3.97270608116560655612e18};

//===----------------------------------------------------------------------===//
// Modified functions
//===----------------------------------------------------------------------===//

/// A Chebyshev series at x / 2 (Clenshaw); half of the last coefficient counts.
static Element chebyshev(Element x, ArrayRef<double> coefficients) {
  Element before = x.like(0), last = x.like(0), sum = x.like(coefficients.front());
  for (double coefficient : coefficients.drop_front()) {
    before = last;
    last = sum;
    sum = x * last - before + coefficient;
  }
  return (sum - before) / 2;
}

/// exp(-|x|) I(|x|), times what `scale` gives.
static Element firstKind(Element size, ArrayRef<double> near, ArrayRef<double> far, bool isOdd,
                         Element scale) {
  Element small = scale * chebyshev(size / 2 - 2, near);
  Element large = scale * chebyshev(32 / size - 2, far) / sqrt(size);
  return select(lessOrEqual(size, 8), isOdd ? small * size : small, large);
}

static Element scaledI0(Element x) {
  return firstKind(abs(x), kI0Near, kI0Far, /*isOdd=*/false, x.like(1));
}
static Element scaledI1(Element x) {
  Element value = firstKind(abs(x), kI1Near, kI1Far, /*isOdd=*/true, x.like(1));
  return select(less(x, 0), -value, value);
}
static Element plainI0(Element x) {
  return firstKind(abs(x), kI0Near, kI0Far, /*isOdd=*/false, exp(abs(x)));
}
static Element plainI1(Element x) {
  Element value = firstKind(abs(x), kI1Near, kI1Far, /*isOdd=*/true, exp(abs(x)));
  return select(less(x, 0), -value, value);
}

/// The slope of an odd function, which at zero, where it divides by x, is one half.
static Element atZero(Element x, Element slope) { return select(equals(x, 0), 0.5, slope); }

static Element i0(Element x) { return with(plainI0(x), x, plainI1(x)); }
static Element i0e(Element x) {
  Element value = scaledI0(x);
  return with(value, x, scaledI1(x) - signOf(x) * value);
}
static Element i1(Element x) {
  Element value = plainI1(x);
  return with(value, x, atZero(x, plainI0(x) - value / x));
}
static Element i1e(Element x) {
  Element value = scaledI1(x);
  return with(value, x, atZero(x, scaledI0(x) - value * (signOf(x) + 1 / x)));
}

/// Of a function with a pole at zero, which negative numbers do not have.
static Element overPositive(Element x, Element value, double pole) {
  return select(equals(x, 0), pole, select(less(x, 0), kNaN, value));
}

/// K of order 0 or 1; `isScaled` takes it times exp(x).
static Element secondKind(Element x, int order, bool isScaled) {
  Element logarithm = log(x / 2);
  Element near = order == 0 ? chebyshev(x * x - 2, kK0Near) - logarithm * plainI0(x)
                            : logarithm * plainI1(x) + chebyshev(x * x - 2, kK1Near) / x;
  Element far = chebyshev(8 / x - 2, order == 0 ? ArrayRef(kK0Far) : ArrayRef(kK1Far)) / sqrt(x);
  Element value = isScaled ? select(lessOrEqual(x, 2), near * exp(x), far)
                           : select(lessOrEqual(x, 2), near, exp(-x) * far);
  return overPositive(x, value, kInfinity);
}

template <bool isScaled> static Element k0(Element x) {
  Element value = secondKind(x, 0, isScaled), slope = -secondKind(x, 1, isScaled);
  return with(value, x, isScaled ? value + slope : slope);
}
template <bool isScaled> static Element k1(Element x) {
  Element value = secondKind(x, 1, isScaled), slope = -(secondKind(x, 0, isScaled) + value / x);
  return with(value, x, isScaled ? value + slope : slope);
}

//===----------------------------------------------------------------------===//
// Functions that swing
//===----------------------------------------------------------------------===//

/// Far from zero, sqrt(2 / (pi x)) (P cos(a) - 5 / x Q sin(a)), or with P sin(a) + 5 / x Q cos(a),
/// where a = x - (1 / 4 + order / 2) pi (Abramowitz and Stegun, 9.2.5 and 9.2.6).
static Element swing(Element x, int order, bool isSecondKind) {
  Element z = 25 / (x * x), angle = x - (0.25 + 0.5 * order) * kPi;
  auto divide = [&](ArrayRef<double> p, ArrayRef<double> q) {
    return polynomial(z, p) / polynomial(z, q);
  };
  Element phase = order == 0 ? divide(kPhaseP0, kPhaseQ0) : divide(kPhaseP1, kPhaseQ1);
  Element tilt = 5 / x * (order == 0 ? divide(kTiltP0, kTiltQ0) : divide(kTiltP1, kTiltQ1));
  Element value = isSecondKind ? phase * sin(angle) + tilt * cos(angle)
                               : phase * cos(angle) - tilt * sin(angle);
  constexpr double rootOfTwoOverPi = 0.79788456080286535588;
  return value * rootOfTwoOverPi / sqrt(x);
}

static Element valueOfJ0(Element x) {
  Element size = abs(x), square = x * x;
  // The squares of the first two zeros.
  Element near = (square - 5.78318596294678452118) * (square - 30.4712623436620863991) *
                 polynomial(square, kJ0P) / polynomial(square, kJ0Q);
  near = select(less(size, 1e-5), 1 - square / 4, near);
  return select(lessOrEqual(size, 5), near, swing(size, 0, /*isSecondKind=*/false));
}

static Element valueOfJ1(Element x) {
  Element size = abs(x), square = x * x;
  Element near = x * (square - 14.6819706421238932572) * (square - 49.2184563216946036703) *
                 polynomial(square, kJ1P) / polynomial(square, kJ1Q);
  Element far = swing(size, 1, /*isSecondKind=*/false);
  return select(lessOrEqual(size, 5), near, select(less(x, 0), -far, far));
}

constexpr double kTwoOverPi = 0.63661977236758134308;

static Element valueOfY0(Element x) {
  Element square = x * x, regular = polynomial(square, kY0P) / polynomial(square, kY0Q);
  Element near = regular + kTwoOverPi * log(x) * valueOfJ0(x);
  Element far = swing(x, 0, /*isSecondKind=*/true);
  return overPositive(x, select(lessOrEqual(x, 5), near, far), -kInfinity);
}

static Element valueOfY1(Element x) {
  Element square = x * x, regular = x * (polynomial(square, kY1P) / polynomial(square, kY1Q));
  Element near = regular + kTwoOverPi * (valueOfJ1(x) * log(x) - 1 / x);
  Element far = swing(x, 1, /*isSecondKind=*/true);
  return overPositive(x, select(lessOrEqual(x, 5), near, far), -kInfinity);
}

static Element j0(Element x) { return with(valueOfJ0(x), x, -valueOfJ1(x)); }
static Element j1(Element x) {
  Element value = valueOfJ1(x);
  return with(value, x, atZero(x, valueOfJ0(x) - value / x));
}
static Element y0(Element x) { return with(valueOfY0(x), x, -valueOfY1(x)); }
static Element y1(Element x) {
  Element value = valueOfY1(x);
  // At 0 the first term, which grows as log x, is nothing beside the second, which does as 1 / x^2.
  return with(value, x, select(equals(x, 0), kInfinity, valueOfY0(x) - value / x));
}

/// sin(x) / x
static Element sphericalJ0(Element x) {
  Element square = x * x;
  Element near = polynomial(square, {1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040,
                                     1.0 / 120, -1.0 / 6, 1.0});
  Element value = select(less(abs(x), 0.5), near, select(isInfinite(x), 0.0, sin(x) / x));
  return with(value, x, select(equals(x, 0), 0.0, (cos(x) - value) / x));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

template <Element (*formula)(Element)> static Error lower(OpContext &op) {
  return mapDoubles(op, formula, op.hasParameter("x") ? "x" : "self");
}

void memopt::pt2::registerBesselFunctions(OpTable &table) {
  table.add("aten.i0.default", "Tensor self", lower<i0>);
  table.add("aten.special_i0e.default", "Tensor self", lower<i0e>);
  table.add("aten.special_i1.default", "Tensor self", lower<i1>);
  table.add("aten.special_i1e.default", "Tensor self", lower<i1e>);
  table.add("aten.special_modified_bessel_i0.default", "Tensor self", lower<i0>);
  table.add("aten.special_modified_bessel_i1.default", "Tensor self", lower<i1>);
  table.add("aten.special_modified_bessel_k0.default", "Tensor self", lower<k0<false>>);
  table.add("aten.special_modified_bessel_k1.default", "Tensor self", lower<k1<false>>);
  table.add("aten.special_scaled_modified_bessel_k0.default", "Tensor x", lower<k0<true>>);
  table.add("aten.special_scaled_modified_bessel_k1.default", "Tensor x", lower<k1<true>>);
  table.add("aten.special_bessel_j0.default", "Tensor self", lower<j0>);
  table.add("aten.special_bessel_j1.default", "Tensor self", lower<j1>);
  table.add("aten.special_bessel_y0.default", "Tensor self", lower<y0>);
  table.add("aten.special_bessel_y1.default", "Tensor self", lower<y1>);
  table.add("aten.special_spherical_bessel_j0.default", "Tensor x", lower<sphericalJ0>);
}
