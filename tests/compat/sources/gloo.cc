// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// A user of gloo's transport ibverbs. The ranks compute a sum, and each of them broadcasts numbers. Then the rank
// LEAVER leaves, and the others do the same once more without it. None of them may see an error because another one has
// left, although each has receives posted for all the others.
//   gloo RANK SIZE FOLDER DEVICE GID_INDEX [LEAVER]     (the ranks meet in the folder)
// Each rank waits for a line of its standard input, or for the end of that, before it leaves or goes on without LEAVER.
//
// A rank that has finished all broadcasts knows that each other rank has received all that it needs of this one. So it
// may leave at once. Its own sends may still wait for their completions, and gloo throws when a buffer is destroyed
// before that. So the program destroys nothing of gloo, and ends.
#include <gloo/allreduce_ring.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/ibverbs/device.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kNumbers = 100000;

using Mesh = std::shared_ptr<gloo::rendezvous::Context>;

Mesh connect(int rank, int size, gloo::rendezvous::Store& store, std::shared_ptr<gloo::transport::Device>& device) {
  auto mesh = std::make_shared<gloo::rendezvous::Context>(rank, size);
  mesh->connectFullMesh(store, device);
  return mesh;
}

void expect(const std::vector<int>& numbers, int value, const std::string& what) {
  for (const int each : numbers)
    if (each != value) throw std::runtime_error("wrong " + what);
}

template <typename Algorithm, typename... Arguments>
void run(const Mesh& mesh, std::vector<int>& numbers, Arguments... arguments) {
  auto* never_destroyed = new Algorithm(mesh, {numbers.data()}, kNumbers, arguments...);
  never_destroyed->run();
}

void work(const Mesh& mesh) {
  auto& numbers = *new std::vector<int>(kNumbers, mesh->rank + 1);
  run<gloo::AllreduceRing<int>>(mesh, numbers);
  expect(numbers, mesh->size * (mesh->size + 1) / 2, "sum");
  for (int root = 0; root < mesh->size; root++) {
    auto& shared = *new std::vector<int>(kNumbers, mesh->rank);
    run<gloo::BroadcastOneToAll<int>>(mesh, shared, root);
    expect(shared, root, "broadcast");
  }
  std::cout << mesh->size << " ranks, all right" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  const int rank = std::atoi(argv[1]), size = std::atoi(argv[2]), leaver = argc > 6 ? std::atoi(argv[6]) : size;
  try {
    auto& device = *new std::shared_ptr(gloo::transport::ibverbs::CreateDevice({argv[4], 1, std::atoi(argv[5])}));
    gloo::rendezvous::FileStore store(argv[3]);
    gloo::rendezvous::PrefixStore first("first", store), second("second", store);
    auto& all = *new Mesh(connect(rank, size, first, device));
    auto& others = *new Mesh();
    if (leaver < size && rank != leaver) others = connect(rank - (rank > leaver ? 1 : 0), size - 1, second, device);

    work(all);
    std::string line;
    std::getline(std::cin, line);
    if (others) work(others);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return 1;
  }
  return 0;
}
