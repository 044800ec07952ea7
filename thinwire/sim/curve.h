// SPDX-License-Identifier: Apache-2.0
// One point of a scaling curve: a network and a cluster in a few words, the values that plans and
// papers are compared by. A pure function; all times are virtual.
//
// Options, as words:
//   ranks                        how many; 1 costs no communication
//   model                        of known_models.h; forward_s, backward_s, update_s: its times,
//                                shared out over the layers by multiplications
//   samples                      of one rank and step; gives samples_per_s
//   grouping (wfbp), form (none) as in `thinwire plan`
//   encode_s_per_byte, decode_s_per_byte   what the form takes, of dense bytes (0)
//   every                        each bucket in so many steps (default: as the grouping says)
//   fuse_bytes                   instead of grouping: size_cap of so many bytes
//   cycle_s                      instead of grouping: what is ready at the end of a cycle goes as
//                                one, up to fuse_bytes (64 MiB); the wait for it is left out
//   grouped (false)              true: grouping, whatever cycle_s and fuse_bytes say
//   overlap (true)               false: everything is sent after the backward pass
//   algorithm (ring)             of all_reduce_link, or hierarchical, torus (with `inner` ranks a
//                                group), or hybrid: hierarchical below `ring_from` bytes, ring else
//                                (default: where the two cost the same)
//   alpha_s, s_per_byte, reduce_s_per_byte  point to point
//   start_s, payload_s_per_byte  instead of these: an all-reduce's own line, as measured
//   control, units               see control_cost.h
//   strategy, parameters, servers, largest_unit  see strategy_cost.h
#pragma once
#include <map>
#include <string>

namespace thinwire {

/// With a model: compute_s, step_s, exposed_s, speedup, efficiency, messages and bytes of a rank
/// and step, largest_bytes and smallest_bytes of a message, all_reduce_s of all gradients as one;
/// start_messages, of all_reduce_s, one after the other; samples_per_s. With `control`:
/// control_bytes, control_messages, control_s. With `strategy`: state_bytes, sent_bytes,
/// server_state_bytes, server_bytes. The plan has no step header, as papers' systems have none.
/// ConfigError for options that are unknown or out of range.
std::map<std::string, double> curve_point(const std::map<std::string, std::string>& options);

}  // namespace thinwire
