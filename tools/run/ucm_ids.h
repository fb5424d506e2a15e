// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ucm_ids.h
/// Numbers of rdma_cm ids.
#ifndef USIW_RUN_UCM_IDS_H
#define USIW_RUN_UCM_IDS_H

#include <cstdint>
#include <memory>
#include <vector>

namespace usiw::run {

class UcmFile;
class UcmId;

/// [world] All ids of a file.
std::vector<std::shared_ptr<UcmId>> ids_of(const UcmFile& file);
/// [world] In a child of fork(): forgets all without a word.
void ids_abandon();
/// The number of the id that a command is about; each has it in another place.
uint32_t id_in(uint32_t cmd, const std::vector<uint8_t>& in);

}  // namespace usiw::run

#endif  // USIW_RUN_UCM_IDS_H
