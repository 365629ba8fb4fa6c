// SPDX-License-Identifier: Apache-2.0
// VerbsTransport: the device, sessions (queue pairs) and registered memory.
#include <fmt/format.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transports/verbs/verbs_transport.h"

namespace infos {

namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kDepth = 256;
constexpr std::uint32_t kPiecesMax = 16;
constexpr std::uint32_t kReadsMax = 16;  // outstanding RDMA reads per queue pair
constexpr auto kFlush = 500ms;           // beyond it the queue pair is destroyed unflushed

Error verbs_error(const char* what) {
  return Error{ErrorCode::io, fmt::format("verbs: {}: {}", what, std::strerror(errno))};
}

}  // namespace

VerbsTransport::Link::~Link() {
  std::erase(owner->links_, this);
  rails.clear();
}

VerbsTransport::VerbsTransport(TransportInfo info, std::unique_ptr<SideChannel> side,
                               std::unique_ptr<VerbsDevice> device, std::uint32_t rails)
    : SessionTransport(std::move(info), std::move(side)),
      device_(std::move(device)),
      rails_(rails) {
  const ibv_device_attr& limits = device_->limits();
  depth_ = std::min(kDepth, static_cast<std::uint32_t>(limits.max_qp_wr));
  pieces_max_ = std::min(kPiecesMax, static_cast<std::uint32_t>(limits.max_sge));
  watch(device_->channel()->fd);
  watch(device_->context()->async_fd);
}

VerbsTransport::~VerbsTransport() { shutdown(); }

Result<std::unique_ptr<Transport>> VerbsTransport::make(const RdmaOptions& options) {
  const RdmaDevice which = INFOS_TRY(find_rdma_device(options.device));
  if (options.rails < 1 || options.rails > 8)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("verbs: {} rails; 1 to 8 are allowed", options.rails)};
  const std::string host = options.host.empty() ? which.address : options.host;
  if (host.empty())
    return Error{ErrorCode::invalid_argument,
                 fmt::format("verbs: device '{}' has no IP address of its own; say on which one "
                             "the side channel listens",
                             which.name)};
  auto device = INFOS_TRY(VerbsDevice::open(which, options.slice_bytes));
  auto side = INFOS_TRY(SideChannel::listen(host, options.silence));
  TransportInfo info;
  info.kind = TransportKind::verbs;
  info.device = which.name;
  info.direct_bytes_min = 4096;
  info.ops_in_flight_max = 128;
  return std::unique_ptr<Transport>(
      new VerbsTransport(std::move(info), std::move(side), std::move(device), options.rails));
}

// ---- memory ----

Status VerbsTransport::region_begin(Region& region) {
  auto kept = std::make_unique<RegionSlices>();
  auto slices = device_->share(region.memory);
  if (!slices) return slices.error();
  kept->slices = std::move(*slices);
  region.attachment = std::move(kept);
  return {};
}

void VerbsTransport::region_end(Region& region) { region.attachment.reset(); }

Status VerbsTransport::grant_begin(Grant& grant) {
  auto kept = std::make_unique<GrantSlices>();
  if (grant.access == Access::write) {
    auto slices = device_->add({grant.memory(), grant.bytes},
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (!slices) return slices.error();
    kept->slices = std::move(*slices);
  }
  grant.attachment = std::move(kept);
  return {};
}

/// From here on the device refuses the keys of a write grant.
void VerbsTransport::grant_end(Grant& grant) { grant.attachment.reset(); }

/// The slices that cover the grant: address, length, key.
std::string VerbsTransport::grant_blob(const Grant& grant) {
  const auto& own = static_cast<const GrantSlices&>(*grant.attachment).slices;
  const VerbsSlices& slices =
      own ? *own : *static_cast<const RegionSlices&>(*grant.region->attachment).slices;
  WireWriter blob;
  std::byte* at = grant.memory();
  for (std::uint64_t left = grant.bytes; left > 0;) {
    const std::uint64_t bytes = std::min(left, slices.room(at));
    blob.number(reinterpret_cast<std::uint64_t>(at)).number(bytes);
    blob.number(slices.slices[slices.slice_of(at)]->rkey);
    at += bytes;
    left -= bytes;
  }
  return blob.take();
}

// ---- sessions ----

Status VerbsTransport::open_rail(Link& link, Rail& rail) {
  ibv_qp_init_attr wish{};
  wish.qp_type = IBV_QPT_RC;
  wish.send_cq = wish.recv_cq = link.completions.get();
  wish.srq = device_->receives();
  wish.cap.max_send_wr = depth_;
  wish.cap.max_send_sge = pieces_max_;
  rail.queue.reset(ibv_create_qp(device_->domain(), &wish));
  if (rail.queue == nullptr) return verbs_error("queue pair");
  rail.posted.resize(depth_);
  INFOS_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&rail.first_packet), 4) == 1);
  rail.first_packet &= 0xFFFFFF;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = device_->which().port;
  attributes.qp_access_flags =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  if (ibv_modify_qp(rail.queue.get(), &attributes,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
    return verbs_error("queue pair to INIT");
  return {};
}

Result<std::string> VerbsTransport::session_half(Session& session) {
  auto owned = std::make_unique<Link>();
  Link& link = *owned;
  link.owner = this;
  link.session = &session;
  links_.push_back(&link);
  session.attachment = std::move(owned);
  // Room for every work request flushed and every receive used.
  const int entries = static_cast<int>(rails_ * depth_ + device_->receives_max());
  link.completions.reset(
      ibv_create_cq(device_->context(), entries, nullptr, device_->channel(), 0));
  if (link.completions == nullptr) return verbs_error("completion queue");
  const std::uint32_t reads =
      std::min(kReadsMax, static_cast<std::uint32_t>(device_->limits().max_qp_rd_atom));
  WireWriter half;
  half.text(std::string_view(reinterpret_cast<const char*>(device_->gid().raw), 16));
  half.number(device_->port().lid).number(static_cast<std::uint32_t>(device_->port().active_mtu));
  half.number(reads).number(rails_);
  link.rails.resize(rails_);
  for (Rail& rail : link.rails) {
    if (const Status status = open_rail(link, rail); !status) return status.error();
    half.number(rail.queue->qp_num).number(rail.first_packet);
  }
  return half.take();
}

Status VerbsTransport::session_begin(Session& session, std::string_view half) {
  Link& link = link_of(session);
  WireReader reader(half);
  const std::string_view gid = reader.text();
  ibv_ah_attr path{};
  path.dlid = reader.number<std::uint16_t>();
  const auto mtu = reader.number<std::uint32_t>();
  const auto reads = reader.number<std::uint32_t>();
  const auto rails = reader.number<std::uint32_t>();
  if (!reader.good() || gid.size() != 16 || rails < 1 || rails > 8)
    return Error{ErrorCode::corrupt, "verbs: not the other half of a session"};
  // Both sides use as many rails as the one with fewer has.
  if (rails < link.rails.size()) link.rails.resize(rails);
  path.port_num = device_->which().port;
  path.is_global = device_->which().ethernet ? 1 : 0;
  std::memcpy(path.grh.dgid.raw, gid.data(), 16);
  path.grh.sgid_index = device_->which().gid_index;
  path.grh.hop_limit = 64;
  for (Rail& rail : link.rails) {
    const auto queue = reader.number<std::uint32_t>();
    const auto packet = reader.number<std::uint32_t>();
    if (!reader.good()) return Error{ErrorCode::corrupt, "verbs: fewer rails than were said"};
    if (const Status status = join_rail(rail, queue, packet, path, mtu, reads); !status)
      return status;
  }
  return {};
}

Status VerbsTransport::join_rail(Rail& rail, std::uint32_t queue, std::uint32_t packet,
                                 const ibv_ah_attr& path, std::uint32_t mtu, std::uint32_t reads) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::clamp<std::uint32_t>(
      std::min(mtu, static_cast<std::uint32_t>(device_->port().active_mtu)), IBV_MTU_256,
      IBV_MTU_4096));
  attributes.dest_qp_num = queue;
  attributes.rq_psn = packet;
  attributes.max_dest_rd_atomic = static_cast<std::uint8_t>(
      std::min(kReadsMax, static_cast<std::uint32_t>(device_->limits().max_qp_rd_atom)));
  attributes.min_rnr_timer = 1;  // 10 us: whoever reads the queue refills it
  attributes.ah_attr = path;
  if (ibv_modify_qp(rail.queue.get(), &attributes,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
    return verbs_error("queue pair to RTR");
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;  // 67 ms, eight times: half a second to a lost peer
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;  // for ever: the side channel knows whether it lives
  attributes.sq_psn = rail.first_packet;
  attributes.max_rd_atomic = static_cast<std::uint8_t>(std::min(
      reads, static_cast<std::uint32_t>(std::max(1, device_->limits().max_qp_init_rd_atom))));
  if (ibv_modify_qp(rail.queue.get(), &attributes,
                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) != 0)
    return verbs_error("queue pair to RTS");
  return {};
}

void VerbsTransport::session_end(Session& session) {
  if (session.attachment == nullptr) return;
  Link& link = link_of(session);
  link.closed = true;
  link.closed_at = SideChannel::Clock::now();
  for (Rail& rail : link.rails) {
    rail.ready.clear();
    if (rail.queue == nullptr) continue;
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    ibv_modify_qp(rail.queue.get(), &attributes, IBV_QP_STATE);
  }
}

/// When all is flushed the queue pairs go, and with them the last way in.
bool VerbsTransport::session_ended(Session& session) {
  if (session.attachment == nullptr) return true;
  Link& link = link_of(session);
  if (link.completions != nullptr) poll_link(link);
  bool flushed = true;
  for (const Rail& rail : link.rails) flushed = flushed && rail.head == rail.tail;
  if (!flushed && SideChannel::Clock::now() - link.closed_at < kFlush) return false;
  link.rails.clear();
  return true;
}

}  // namespace infos

extern "C" void infos_make_transport(const infos::RdmaOptions& options,
                                     infos::Result<std::unique_ptr<infos::Transport>>& result) {
  result = infos::VerbsTransport::make(options);
}
