// SPDX-License-Identifier: Apache-2.0
#include "transports/choice/choice.h"

#include <algorithm>

namespace infos {
namespace {

bool has(const LinkOffer& offer, TransportKind kind) {
  return std::find(offer.kinds.begin(), offer.kinds.end(), kind) != offer.kinds.end();
}

/// Why shared memory is out.
std::string why_not_shm(const LinkOffer& a, const LinkOffer& b) {
  if (a.host.empty() || b.host.empty() || a.host != b.host) return "they run on different hosts";
  return (has(a, TransportKind::shm) ? b : a).name + " has no shared memory open";
}

/// Why RDMA is out.
std::string why_not_rdma(const LinkOffer& a, const LinkOffer& b) {
  if (a.rdma_device.empty() && b.rdma_device.empty()) return "neither has an RDMA device";
  if (a.rdma_device.empty() || b.rdma_device.empty())
    return (a.rdma_device.empty() ? a : b).name + " has no RDMA device";
  if (a.rdma_fabric != b.rdma_fabric)
    return "their RDMA devices are of different fabrics (" + a.rdma_fabric + ", " + b.rdma_fabric +
           ")";
  return "they have no RDMA transport in common";
}

std::string pair_of(const LinkOffer& a, const LinkOffer& b) { return a.name + " and " + b.name; }

}  // namespace

LinkChoice choose_transport(const LinkOffer& first, const LinkOffer& second) {
  const LinkOffer& a = first.name <= second.name ? first : second;
  const LinkOffer& b = first.name <= second.name ? second : first;
  const auto both = [&](TransportKind kind) { return has(a, kind) && has(b, kind); };
  if (!a.host.empty() && a.host == b.host && both(TransportKind::shm))
    return {TransportKind::shm, "shm: " + pair_of(a, b) + " run on one host"};
  const std::string no_shm = why_not_shm(a, b);
  const bool rdma =
      !a.rdma_device.empty() && !b.rdma_device.empty() && a.rdma_fabric == b.rdma_fabric;
  for (const TransportKind kind : {TransportKind::verbs, TransportKind::ucx})
    if (rdma && both(kind))
      return {kind, std::string(to_string(kind)) + ": " + no_shm + "; " + pair_of(a, b) +
                        " have the RDMA devices " + a.rdma_device + " and " + b.rdma_device};
  const std::string why = no_shm + "; " + why_not_rdma(a, b);
  for (const TransportKind kind : {TransportKind::tcp, TransportKind::ucx})
    if (both(kind)) return {kind, std::string(to_string(kind)) + ": " + why};
  return {std::nullopt, "no transport between " + pair_of(a, b) + ": " + why +
                            "; they have neither tcp nor ucx in common"};
}

}  // namespace infos
