// SPDX-License-Identifier: Apache-2.0
// Properties over random specs and plans: what is written is read back as it was.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "thinwire/core/error.h"
#include "thinwire/plan/plan.h"

namespace thinwire {
namespace {

namespace gen = rc::gen;

rc::Gen<std::string> name() {
  return gen::map(gen::pair(gen::inRange('a', '{'),
                            gen::container<std::string>(gen::elementOf(std::string("abzAZ_09.-")))),
                  [](const auto& parts) {
                    return std::string(1, static_cast<char>(parts.first)) + parts.second;
                  });
}
rc::Gen<std::string> value() {
  static const std::vector<std::string> kPieces{"a", "0", ".", ":",  "/", "=", "+",  "-",
                                                "[", "]", "'", "\"", "%", " ", "\\", "\xC3\xA9"};
  const auto pieces = gen::container<std::vector<std::string>>(gen::elementOf(kPieces));
  return gen::map(pieces, [](const std::vector<std::string>& parts) {
    std::string out = "v";
    for (const auto& part : parts) out += part;
    return out + "w";  // blanks at the ends are dropped, so none stands there
  });
}
rc::Gen<Spec> spec(int depth) {
  return gen::build<Spec>(
      gen::set(&Spec::name, name()),
      gen::set(&Spec::params, gen::container<std::map<std::string, std::string>>(name(), value())),
      gen::set(&Spec::inner,
               depth == 0 ? gen::just(std::vector<Spec>{})
                          : gen::scale(0.4, gen::container<std::vector<Spec>>(spec(depth - 1)))));
}

RC_GTEST_PROP(SpecProperty, PrintsBackToItself, ()) {
  const auto chain = *gen::nonEmpty(gen::scale(0.3, gen::container<std::vector<Spec>>(spec(2))));
  const std::string text = to_string(chain);
  RC_ASSERT(parse_chain(text) == chain);
  RC_ASSERT(to_string(parse_chain(text)) == text);
}

RC_GTEST_PROP(SpecProperty, AnyTextIsReadOrRefused, (const std::string& text)) {
  try {
    const auto chain = parse_chain(text);
    RC_ASSERT(parse_chain(to_string(chain)) == chain);
  } catch (const ConfigError&) {
    RC_SUCCEED("refused");
  }
}

template <class T>
rc::Gen<T> word(T last) {
  return gen::map(gen::inRange(0, static_cast<int>(last) + 1),
                  [](int i) { return static_cast<T>(i); });
}
rc::Gen<When> when() {
  return gen::build<When>(gen::set(&When::phase, word(Phase::update_end)), gen::set(&When::every),
                          gen::set(&When::offset), gen::set(&When::lag));
}
rc::Gen<Exchange> exchange() {
  return gen::build<Exchange>(
      gen::set(&Exchange::id), gen::set(&Exchange::what, word(Role::statistic)),
      gen::set(&Exchange::bucket), gen::set(&Exchange::group),
      gen::set(&Exchange::pattern, word(Pattern::stash)),
      gen::set(&Exchange::combine, word(Combine::replace)),
      gen::set(&Exchange::form, gen::scale(0.2, gen::container<std::vector<Spec>>(spec(1)))),
      gen::set(&Exchange::start, when()), gen::set(&Exchange::need, when()),
      gen::set(&Exchange::payload), gen::set(&Exchange::algorithm, name()),
      gen::set(&Exchange::chunk), gen::set(&Exchange::priority));
}
template <class T>
rc::Gen<std::vector<T>> list(rc::Gen<T> one) {
  return gen::scale(0.3, gen::container<std::vector<T>>(std::move(one)));
}
rc::Gen<Plan> plan() {
  const auto tensor = gen::build<TensorDesc>(gen::set(&TensorDesc::name, value()),
                                             gen::set(&TensorDesc::dtype, word(DType::bool8)),
                                             gen::set(&TensorDesc::shape));
  const auto slice =
      gen::build<Slice>(gen::set(&Slice::tensor), gen::set(&Slice::begin), gen::set(&Slice::end));
  const auto bucket = gen::build<Bucket>(gen::set(&Bucket::slices, list(slice)));
  const auto group =
      gen::build<Group>(gen::set(&Group::ranks), gen::set(&Group::topology, spec(1)));
  const auto op = gen::build<Op>(gen::set(&Op::kind, word(OpKind::exchange)), gen::set(&Op::index),
                                 gen::set(&Op::microbatch), gen::set(&Op::after));
  const auto shard = gen::build<ShardMap>(gen::set(&ShardMap::owner));
  const auto row = gen::build<HaloRow>(gen::set(&HaloRow::row), gen::set(&HaloRow::item),
                                       gen::set(&HaloRow::weight));
  const auto halo =
      gen::build<HaloMap>(gen::set(&HaloMap::send, list(list(row))), gen::set(&HaloMap::recv));
  return gen::build<Plan>(
      gen::set(&Plan::tensors, list(tensor)), gen::set(&Plan::grouping, list(bucket)),
      gen::set(&Plan::groups, list(group)), gen::set(&Plan::exchanges, list(exchange())),
      gen::set(&Plan::schedule, list(list(op))), gen::set(&Plan::shards, list(shard)),
      gen::set(&Plan::halos, list(halo)));
}

RC_GTEST_PROP(PlanProperty, JsonReadsBackAsItWas, ()) {
  const Plan a = *plan();
  const std::string text = to_json(a);
  const Plan b = plan_from_json(text);
  RC_ASSERT(b == a);
  RC_ASSERT(to_json(b) == text);
  RC_ASSERT(digest(b) == digest(a));
  RC_ASSERT(first_difference(a, b).empty());
}

RC_GTEST_PROP(PlanProperty, DifferentPlansDifferInWordsAndDigest, ()) {
  const Plan a = *plan(), b = *plan();
  RC_ASSERT((a == b) == first_difference(a, b).empty());
  RC_ASSERT((a == b) == (digest(a) == digest(b)));
}

// Validation of any values at all ends in a verdict, never in a crash.
RC_GTEST_PROP(PlanProperty, ValidateAlwaysEnds, ()) {
  try {
    validate(*plan(), *gen::inRange(-1, 5));
  } catch (const ConfigError&) {
    RC_SUCCEED("refused");
  }
}

}  // namespace
}  // namespace thinwire
