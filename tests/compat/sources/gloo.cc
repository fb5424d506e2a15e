// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// A user of gloo's transport ibverbs: the sum of two ranks' numbers.
//   gloo RANK FOLDER DEVICE      (the ranks meet in the folder)
#include <gloo/allreduce_ring.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int rank = std::atoi(argv[1]);
  try {
    gloo::transport::ibverbs::attr attributes{argv[3], 1, 0};
    auto device = gloo::transport::ibverbs::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(argv[2]);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, 2);
    context->connectFullMesh(store, device);
    std::vector<int> data(100000, rank + 1);
    gloo::AllreduceRing<int>(context, {data.data()}, static_cast<int>(data.size())).run();
    for (int each : data)
      if (each != 3) throw std::runtime_error("wrong sum");
    std::cout << "2 ranks, sum right" << std::endl;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return 1;
  }
  return 0;
}
