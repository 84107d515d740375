//===- SpecialFunctions.cpp - functions of statistics and signal processing -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Functions of statistics that models have now and then.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Special/SpecialFunctions.h"

using namespace llvm;
using namespace memopt::pt2;
using Elements = ArrayRef<Element>;

constexpr double kRootOfPi = 1.77245385090551602730, kRootOfTwo = 1.41421356237309504880;

Error memopt::pt2::mapDoubles(OpContext &op, llvm::function_ref<Element(Element)> formula,
                              StringRef parameter) {
  DType type = op.resultMeta(0).dtype;
  RETURN_IF_ERROR(op.checkReal(type));
  ASSIGN_OR_RETURN(Tensor result, elementwise(op, {op.tensor(parameter)}, DType::F64, DType::F64,
                                              inBuild([&](Elements v) { return formula(v[0]); })));
  return setResult(op, castTo(op, result, type));
}

Element memopt::pt2::polynomial(Element x, ArrayRef<double> coefficients) {
  Element result = x.like(coefficients.front());
  for (double coefficient : coefficients.drop_front())
    result = result * x + coefficient;
  return result;
}

//===----------------------------------------------------------------------===//
// Signals and probabilities
//===----------------------------------------------------------------------===//

/// sin(pi x) / (pi x)
static Element sinc(Element x) {
  Element angle = x * kPi, square = angle * angle / kPi; // PyTorch's denominator of the slope
  Element value = select(equals(x, 0), 1.0, sin(angle) / angle);
  Element slope = (angle * cos(angle) - sin(angle)) / square;
  return with(value, x, select(equals(square, 0), 0.0, slope));
}
static Error lowerSinc(OpContext &op) { return mapDoubles(op, sinc); }

/// log(x / (1 - x)), x held between eps and 1 - eps when eps is given.
static Error lowerLogit(OpContext &op) {
  bool isHeld = op.has("eps");
  double eps = isHeld ? op.number("eps") : 0;
  return mapReals(op, {op.tensor("self")}, [&](Elements v) {
    Element x = v[0], held = x;
    if (isHeld) // eps may be above 1 / 2
      held = select(less(x, eps), eps, select(greater(x, 1 - eps), 1 - eps, x));
    Element slope = 1 / (x * (1 - x));
    Element isOut = less(x, eps) | greater(x, 1 - eps);
    return with(log(held / (1 - held)), x, select(isOut, isHeld ? 0 : kNaN, slope));
  });
}

/// -x log x, 0 at 0.
static Element entropy(Element x) {
  Element value = select(equals(x, 0), 0.0, -(x * log(x)));
  return with(select(less(x, 0), -kInfinity, value), x, -1 - log(x));
}
static Error lowerEntropy(OpContext &op) { return mapDoubles(op, entropy); }

//===----------------------------------------------------------------------===//
// The normal distribution
//===----------------------------------------------------------------------===//

/// exp(x^2) erfc(x) and its derivative, 2 x f(x) - 2 / sqrt(pi). The square is rounded, which the
/// exponential would magnify, so what it lacks is added; from 5 on the continued fraction of
/// Laplace (Abramowitz and Stegun, 7.1.14), whose last step gives the derivative without that
/// difference of nearly equal terms.
struct ScaledComplement {
  Element value, slope;
};
static ScaledComplement positiveErfcx(Element x) {
  Element coarse = roundToEven(x * 4096) / 4096, rest = (x - coarse) * (x + coarse);
  Element near = exp(coarse * coarse) * exp(rest) * erfc(x);
  Element inner = x;
  for (int k = 40; k > 1; --k)
    inner = x + (0.5 * k) / inner;
  Element fraction = x + 0.5 / inner, isNear = less(x, 5);
  return {select(isNear, near, 1 / (kRootOfPi * fraction)),
          select(isNear, 2 * (x * near) - 2 / kRootOfPi, -1 / (kRootOfPi * inner) / fraction)};
}

static Element erfcx(Element x) {
  auto [value, slope] = positiveErfcx(abs(x));
  // Of a large negative number the reflected part is nothing.
  Element reflected = 2 * exp(x * x) - value, isBelow = less(x, 0);
  return with(select(isBelow, reflected, value), x,
              select(isBelow, 2 * (x * reflected) - 2 / kRootOfPi, slope));
}
static Error lowerErfcx(OpContext &op) { return mapDoubles(op, erfcx); }

static Element density(Element x) { return exp(-(x * x) / 2) / (kRootOfTwo * kRootOfPi); }

static Element normalCdf(Element x) { return with((erf(x / kRootOfTwo) + 1) / 2, x, density(x)); }
static Error lowerNormalCdf(OpContext &op) { return mapDoubles(op, normalCdf); }

static Element logNormalCdf(Element x) {
  Element t = -(x / kRootOfTwo), scaled = positiveErfcx(largerOf(t, t.like(0))).value;
  Element tail = log(scaled / 2) - t * t;
  Element value = select(less(x, -1), tail, log1p(-(erfc(-t) / 2)));
  Element slope =
      select(less(x, -1), (2 / (kRootOfTwo * kRootOfPi)) / scaled, density(x) / (erfc(t) / 2));
  return with(value, x, slope);
}
static Error lowerLogNormalCdf(OpContext &op) { return mapDoubles(op, logNormalCdf); }

/// Wichura, The Percentage Points of the Normal Distribution (AS 241), PPND16: the quantile of
/// 1/2 + q, and of the distance `tail` of a probability from the nearer end.
static Element centralQuantile(Element q) {
  Element r = 0.180625 - q * q;
  return q *
         polynomial(r,
                    {2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4,
                     4.5921953931549871457e+4, 1.3731693765509461125e+4, 1.9715909503065514427e+3,
                     1.3314166789178437745e+2, 3.3871328727963666080e0}) /
         polynomial(r,
                    {5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4,
                     2.1213794301586595867e+4, 5.3941960214247511077e+3, 6.8718700749205790830e+2,
                     4.2313330701600911252e+1, 1.0});
}

static Element tailQuantile(Element tail) {
  Element root = sqrt(-log(tail)), near = root - 1.6, far = root - 5;
  Element atNear = polynomial(near, {7.74545014278341407640e-4, 2.27238449892691845833e-2,
                                     2.41780725177450611770e-1, 1.27045825245236838258e0,
                                     3.64784832476320460504e0, 5.76949722146069140550e0,
                                     4.63033784615654529590e0, 1.42343711074968357734e0}) /
                   polynomial(near, {1.05075007164441684324e-9, 5.47593808499534494600e-4,
                                     1.51986665636164571966e-2, 1.48103976427480074590e-1,
                                     6.89767334985100004550e-1, 1.67638483018380384940e0,
                                     2.05319162663775882187e0, 1.0});
  Element atFar = polynomial(far, {2.01033439929228813265e-7, 2.71155556874348757815e-5,
                                   1.24266094738807843860e-3, 2.65321895265761230930e-2,
                                   2.96560571828504891230e-1, 1.78482653991729133580e0,
                                   5.46378491116411436990e0, 6.65790464350110377720e0}) /
                  polynomial(far, {2.04426310338993978564e-15, 1.42151175831644588870e-7,
                                   1.84631831751005468180e-5, 7.86869131145613259100e-4,
                                   1.48753612908506148525e-2, 1.36929880922735805310e-1,
                                   5.99832206555887937690e-1, 1.0});
  Element value = select(lessOrEqual(root, 5), atNear, atFar);
  return select(equals(tail, 0), kInfinity, value);
}

/// The quantile of the probability (1 + x) / 2.
static Element symmetricQuantile(Element x) {
  Element tail = copySign(tailQuantile((1 - abs(x)) / 2), x);
  return select(lessOrEqual(abs(x), 0.85), centralQuantile(x / 2), tail);
}

static Element erfinv(Element x) {
  Element value = symmetricQuantile(x) / kRootOfTwo;
  return with(value, x, exp(value * value) * (kRootOfPi / 2));
}
static Error lowerErfinv(OpContext &op) { return mapDoubles(op, erfinv); }

static Element normalQuantile(Element p) {
  Element q = p - 0.5, tail = tailQuantile(select(less(q, 0), p, 1 - p));
  Element outer = select(less(q, 0), -tail, tail);
  Element value = select(lessOrEqual(abs(q), 0.425), centralQuantile(q), outer);
  return with(value, p, 1 / density(value));
}
static Error lowerNormalQuantile(OpContext &op) { return mapDoubles(op, normalQuantile); }

//===----------------------------------------------------------------------===//
// The gamma function
//===----------------------------------------------------------------------===//

/// log gamma(1 + z) for |z| <= 1/2: -log(1 + z) + (1 - gamma) z + sum (-1)^k (zeta(k) - 1) z^k / k
/// (Digital Library of Mathematical Functions, 5.7.3).
static Element logGammaSeries(Element z) {
  constexpr double oneMinusEuler = 0.42278433509846713939;
  Element tail =
      polynomial(z, {5.7313672416788623e-10,  -1.1921401405860912e-09, 2.4836745438024785e-09,
                     -5.1834750419700466e-09, 1.0838659214896955e-08,  -2.2711094608943164e-08,
                     4.7698101693639804e-08,  -1.0043224823968099e-07, 2.1207184805554665e-07,
                     -4.4924691987645662e-07, 9.5514121304074194e-07,  -2.0392157538013662e-06,
                     4.3748667899074882e-06,  -9.4394882752683967e-06, 2.0507212775670691e-05,
                     -4.4926236738133142e-05, 9.9457512781808531e-05,  -0.00022315475845357939,
                     0.00050966952474304245,  -0.001192753911703261,   0.0028905103307415234,
                     -0.0073855510286739857,  0.020580808427784546,    -0.067352301053198102,
                     0.3224670334241132});
  return z * (oneMinusEuler + z * tail) - log1p(z);
}

/// log |gamma(x)| for x > 0: between 1.5 and 10.5 the factors that lead down to [1.5, 2.5], beyond
/// Stirling's series, below one factor up.
Element memopt::pt2::positiveLogGamma(Element x) {
  Element down = x, factors = x.like(1);
  for (int step = 0; step != 9; ++step) {
    Element isHigh = greater(down, 2.5);
    down = select(isHigh, down - 1, down);
    factors = select(isHigh, factors * down, factors);
  }
  Element aroundTwo = log1p(down - 2) + logGammaSeries(down - 2);
  Element middle = aroundTwo + log(factors);
  Element low = select(less(x, 0.5), logGammaSeries(x) - log(x), logGammaSeries(x - 1));
  Element square = 1 / (x * x);
  Element series = polynomial(square, {1.0 / 156, -691.0 / 360360, 1.0 / 1188, -1.0 / 1680,
                                       1.0 / 1260, -1.0 / 360, 1.0 / 12}) /
                   x;
  constexpr double halfLogTwoPi = 0.91893853320467274178;
  Element stirling = (x - 0.5) * log(x) - x + halfLogTwoPi + series;
  Element value = select(less(x, 1.5), low, select(less(x, 10.5), middle, stirling));
  return select(equals(x, kInfinity), x, value);
}

/// Cephes' psi: up to 10 by the recurrence, then the asymptotic series.
static Element positiveDigamma(Element x) {
  Element sum = x.like(0);
  for (int step = 0; step != 10; ++step) {
    Element isLow = less(x, 10);
    sum = select(isLow, sum - 1 / x, sum);
    x = select(isLow, x + 1, x);
  }
  Element z = 1 / (x * x);
  Element series = z * polynomial(z, {8.33333333333333333333e-2, -2.10927960927960927961e-2,
                                      7.57575757575757575758e-3, -4.16666666666666666667e-3,
                                      3.96825396825396825397e-3, -8.33333333333333333333e-3,
                                      8.33333333333333333333e-2});
  return sum + log(x) - 0.5 / x - series;
}

/// sin(pi x) and cos(pi x), exact at integers and halves.
static std::pair<Element, Element> sineAndCosineOfTurns(Element x) {
  Element whole = roundToEven(x), rest = (x - whole) * kPi;
  Element isOdd = differs(whole / 2, floor(whole / 2));
  auto sign = [&](Element y) { return select(isOdd, -y, y); };
  return {sign(sin(rest)), sign(cos(rest))};
}

static Element digammaValue(Element x) {
  Element reflected = select(less(x, 0), 1 - x, x);
  auto [sine, cosine] = sineAndCosineOfTurns(x);
  Element value = positiveDigamma(reflected);
  value = select(less(x, 0), value - kPi * cosine / sine, value);
  Element isPole = less(x, 0) & equals(x, floor(x));
  value = select(isPole, kNaN, value);
  return select(equals(x, 0), copySign(x.like(kInfinity), -x), value);
}

/// The derivative of digamma, as PyTorch computes it but for the last three terms of the series.
static Element trigamma(Element x) {
  Element isLow = less(x, 0.5), sine = sin(x * kPi);
  Element y = select(isLow, 1 - x, x), sum = x.like(0);
  for (int step = 0; step != 10; ++step) {
    sum = sum + 1 / (y * y);
    y = y + 1;
  }
  Element z = 1 / (y * y);
  Element series = 1 + 0.5 / y +
                   z * polynomial(z, {7.0 / 6, -691.0 / 2730, 5.0 / 66, -1.0 / 30, 1.0 / 42,
                                      -1.0 / 30, 1.0 / 6});
  Element value = sum + series / y;
  return select(isLow, kPi * kPi / (sine * sine) - value, value);
}

static Element digamma(Element x) { return with(digammaValue(x), x, trigamma(x)); }
static Error lowerDigamma(OpContext &op) { return mapDoubles(op, digamma); }

static Element logGamma(Element x) {
  Element isLow = less(x, 0);
  Element sine = abs(sineAndCosineOfTurns(x).first);
  Element ofPositive = positiveLogGamma(select(isLow, 1 - x, x));
  Element value = select(isLow, log(kPi / sine) - ofPositive, ofPositive);
  value = select(equals(abs(x), kInfinity) | equals(x, 0), kInfinity, value);
  return with(value, x, digammaValue(x));
}
static Error lowerLogGamma(OpContext &op) { return mapDoubles(op, logGamma); }

/// The logarithm of the multivariate gamma function.
static Error lowerMultivariateLogGamma(OpContext &op) {
  int64_t p = op.integer("p");
  constexpr int64_t most = 64;
  if (p < 1 || p > most)
    return op.error("argument 'p': expected a number from 1 to " + Twine(most) + ", found " +
                    Twine(p));
  return mapDoubles(op, [&](Element x) {
    Element sum = x.like(double(p * (p - 1)) / 4 * std::log(kPi));
    for (int64_t i = 0; i != p; ++i)
      sum = sum + logGamma(x - double(i) / 2);
    return sum;
  });
}

/// The Hurwitz zeta function, the sum of (x + k)^-s over all k from 0, for x >= 0: its first terms,
/// then Euler's and Maclaurin's formula for the others.
static Element hurwitzZeta(int64_t s, Element x) {
  auto power = [&](Element y) { return pow(y, y.like(double(-s))); };
  // From here on each correction is at most a 30th of the one before.
  int64_t terms = s + 10;
  Element sum = x.like(0);
  for (int64_t k = 0; k != terms; ++k)
    sum = sum + power(x + double(k));
  // Bernoulli's numbers B(2k) by (2k)!
  constexpr double factors[] = {1.0 / 12,         -1.0 / 720,     1.0 / 30240,
                                -1.0 / 1209600,   1.0 / 47900160, -691.0 / 1307674368000,
                                1.0 / 74724249600};
  SmallVector<double> corrections; // of z, the highest first
  double rising = double(s);       // s (s + 1) ... (s + 2k - 2)
  for (auto [k, factor] : enumerate(factors)) {
    corrections.insert(corrections.begin(), factor * rising);
    rising *= double(s + 2 * k + 1) * double(s + 2 * k + 2);
  }
  Element y = x + double(terms), z = 1 / (y * y);
  return sum + power(y) * (y / double(s - 1) + 0.5 + y * z * polynomial(z, corrections));
}

/// The n-th derivative of pi cot(pi x) as a polynomial of the cotangent c, the highest first:
/// the derivative of c is -pi (1 + c^2).
static SmallVector<double> differentiateCotangent(int64_t n) {
  SmallVector<double> value{0, kPi}; // the lowest first
  for (int64_t order = 0; order != n; ++order) {
    SmallVector<double> next(value.size() + 1, 0);
    for (size_t power = 1; power != value.size(); ++power) {
      double slope = -kPi * double(power) * value[power];
      next[power - 1] += slope;
      next[power + 1] += slope;
    }
    value = next;
  }
  std::reverse(value.begin(), value.end());
  return value;
}

/// The n-th derivative of digamma, below 0 by reflection. Every n but 1 is infinite at the poles.
static Element polygammaValue(int64_t n, Element x) {
  if (n <= 1)
    return n == 0 ? digammaValue(x) : trigamma(x);
  double sign = n % 2 ? 1 : -1;
  Element isLow = less(x, 0);
  Element value = hurwitzZeta(n + 1, select(isLow, 1 - x, x)) * (sign * std::tgamma(double(n + 1)));
  auto [sine, cosine] = sineAndCosineOfTurns(x);
  Element reflected = value * -sign - polynomial(cosine / sine, differentiateCotangent(n));
  Element isPole = isLow & equals(x, floor(x));
  return select(isPole, sign * kInfinity, select(isLow, reflected, value));
}

static Error lowerPolygamma(OpContext &op) {
  int64_t n = op.integer("n");
  constexpr int64_t most = 100; // n! (2 pi)^n stays far within the range of doubles
  if (n < 0 || n > most)
    return op.error("argument 'n': expected a number from 0 to " + Twine(most) + ", found " +
                    Twine(n));
  return mapDoubles(
      op, [&](Element x) { return with(polygammaValue(n, x), x, polygammaValue(n + 1, x)); });
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerSpecialFunctions(OpTable &table) {
  for (auto [name, lower] : {std::pair<StringLiteral, Lowering>("aten.sinc.default", lowerSinc),
                             {"aten.special_entr.default", lowerEntropy},
                             {"aten.special_erfcx.default", lowerErfcx},
                             {"aten.special_ndtr.default", lowerNormalCdf},
                             {"aten.special_log_ndtr.default", lowerLogNormalCdf},
                             {"aten.special_ndtri.default", lowerNormalQuantile},
                             {"aten.erfinv.default", lowerErfinv},
                             {"aten.lgamma.default", lowerLogGamma},
                             {"aten.digamma.default", lowerDigamma}})
    table.add(name, "Tensor self", lower);
  table.add("aten.logit.default", "Tensor self, float? eps=None", lowerLogit);
  table.add("aten.mvlgamma.default", "Tensor self, int p", lowerMultivariateLogGamma);
  table.add("aten.polygamma.default", "int n, Tensor self", lowerPolygamma);
  table.add("aten.special_polygamma.default", "int n, Tensor self", lowerPolygamma);
}
