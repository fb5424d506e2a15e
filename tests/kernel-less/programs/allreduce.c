// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// An MPI program: sums of 1 MiB over all ranks, verified, and then around the ring of ranks by messages of many sizes.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kInts = 1 << 18, kRounds = 5 };

int main(int argc, char** argv) {
  int rank, size, errors = 0, all_errors;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int* mine = malloc(kInts * sizeof *mine);
  int* sum = malloc(kInts * sizeof *sum);
  for (int round = 0; round < kRounds; round++) {
    for (int i = 0; i < kInts; i++) mine[i] = rank + i + round;
    MPI_Allreduce(mine, sum, kInts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < kInts; i++) errors += sum[i] != size * (size - 1) / 2 + size * (i + round);
  }
  for (int count = 1; count <= kInts; count *= 4) {
    for (int i = 0; i < count; i++) mine[i] = rank * 7 + i;
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Sendrecv(mine, count, MPI_INT, next, 1, sum, count, MPI_INT, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < count; i++) errors += sum[i] != before * 7 + i;
  }
  MPI_Reduce(&errors, &all_errors, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks, %d errors\n", size, all_errors);
  MPI_Finalize();
  return errors != 0;
}
