// SPDX-License-Identifier: Apache-2.0
// The header of a frame is refused as a DataError, or read and written back as the same bytes.
#include <cstring>

#include "thinwire/comm/tcp/frame.h"
#include "thinwire/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace thinwire::tcp;
  FrameBytes in{}, out;
  std::memcpy(in.data(), data, size < in.size() ? size : in.size());
  try {
    const Frame frame = decode(in);
    encode(frame, out);
    if (frame.length > kMostFrameLength || frame.call.count < 0 || frame.offset < 0 ||
        !(decode(out).call == frame.call))
      __builtin_trap();
  } catch (const thinwire::DataError&) {
  }
  return 0;
}
