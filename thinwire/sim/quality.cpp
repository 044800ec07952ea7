// SPDX-License-Identifier: Apache-2.0
// What each quality admits. The losses are those that docs/experiments.md holds; a form enters here
// when an experiment there has shown it, and leaves when one there shows otherwise.
#include <fmt/format.h>

#include "thinwire/core/error.h"
#include "thinwire/core/text.h"
#include "thinwire/sim/search.h"

namespace thinwire {

std::string_view to_string(Quality quality) {
  switch (quality) {
    case Quality::same:
      return "same";
    case Quality::bounded:
      return "bounded";
    case Quality::free:
      return "free";
  }
  return "?";
}

Quality parse_quality(std::string_view text) {
  for (const Quality one : {Quality::same, Quality::bounded, Quality::free})
    if (text == to_string(one)) return one;
  const std::vector<std::string> names{"bounded", "free", "same"};
  throw ConfigError(unknown_name("quality", text, names));
}

const std::vector<Admitted>& admitted_forms() {
  static const std::vector<Admitted> all{
      {"cast{bf16}", true, "imagenet-four-minutes", "bf16", "+0.17 points [-0.16, +0.50]"},
      {"cast{f16}", true, "imagenet-four-minutes", "f16", "+0.09 points [-0.19, +0.37]"},
      {"ef|powersgd{rank=4}", true, "powersgd", "rank4", "-0.25 points [-0.51, +0.00]"},
      {"ef|sign", false, "error-feedback-dgc", "ef_sign_plain", "+0.12 points [-0.24, +0.48]"},
      {"ef|topk{ratio=0.01}", false, "error-feedback-dgc", "ef_topk_plain",
       "+0.15 points [-0.16, +0.47]"},
      {"qsgd{bits=4}", true, "allreduce-quantization", "qsgd", "-0.00 points [-0.06, +0.06]"},
  };
  return all;
}

std::vector<std::string> forms_of(Quality quality, bool momentum) {
  std::vector<std::string> out{"none"};
  if (quality == Quality::same) return out;
  for (const Admitted& one : admitted_forms())
    if (quality == Quality::free || one.with_momentum || !momentum) out.push_back(one.form);
  if (quality == Quality::free)
    for (const char* form :
         {"ef|powersgd{rank=1}", "ef|powersgd{rank=2}", "ef{schedule=ramp}|none"})
      out.emplace_back(form);
  return out;
}

}  // namespace thinwire
