// SPDX-License-Identifier: Apache-2.0
// VerbsTransport: SessionTransport over RC queue pairs, one per rail and session.
//
// Gets are RDMA reads, puts RDMA writes. The last write of a put carries an immediate: a count per
// rail. Its receiver, who sees it only after the bytes, sends the count back the same way, and that
// is when the put is `ok`. Immediates take receives from one shared queue. Work is posted in
// batches; the last of each is signalled and tells of all before it.
//
// Regions may be read with their registration's key; a write grant has a registration of its own,
// which ends with it. A fence moves the queue pairs to ERR, waits for the flush and destroys them.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transports/rdma/rdma_options.h"
#include "transports/rdma/session_transport.h"
#include "transports/verbs/verbs_device.h"

namespace infos {

class VerbsTransport final : public SessionTransport {
 public:
  static Result<std::unique_ptr<Transport>> make(const RdmaOptions& options);
  ~VerbsTransport() override;

 private:
  /// How far an operation has been posted.
  struct Walk : Attachment {
    std::size_t rail = 0, piece = 0;
    std::uint64_t offset = 0;
    std::uint32_t open = 0;  ///< work requests and acknowledgements that are to come
    Verdict verdict = Verdict::ok;
  };
  struct Rail {
    VerbsQueue queue;
    std::uint32_t first_packet = 0;
    std::uint64_t head = 0, tail = 0;  ///< work requests: posted, completed
    std::vector<Op*> posted;           ///< by number modulo the depth; null: an acknowledgement
    std::deque<Op*> ready;             ///< operations with more to post
    std::uint32_t puts_sent = 0;       ///< 31 bits, as the immediates have
    std::deque<std::pair<std::uint32_t, Op*>> unanswered;
    std::uint32_t puts_received = 0, puts_answered = 0;
  };
  struct Link : Attachment {
    ~Link() override;
    VerbsTransport* owner = nullptr;
    Session* session = nullptr;
    VerbsCompletions completions;  // outlives the queues below
    std::vector<Rail> rails;
    std::string broken;
    bool closed = false;
    SideChannel::Clock::time_point closed_at{};
  };
  struct RegionSlices : Attachment {
    std::shared_ptr<VerbsSlices> slices;
  };
  struct GrantSlices : Attachment {
    std::unique_ptr<VerbsSlices> slices;  ///< null for reads
  };
  struct RemoteSlice {
    std::uint64_t begin = 0;  ///< from the grant's begin
    std::uint64_t address = 0, bytes = 0;
    std::uint32_t key = 0;
  };
  struct RemoteSlices : Attachment {
    std::vector<RemoteSlice> slices;
  };
  struct Batch;

  VerbsTransport(TransportInfo info, std::unique_ptr<SideChannel> side,
                 std::unique_ptr<VerbsDevice> device, std::uint32_t rails);
  static Link& link_of(Session& session) { return static_cast<Link&>(*session.attachment); }
  static Walk& walk_of(Op& op) { return static_cast<Walk&>(*op.attachment); }

  Status region_begin(Region& region) override;
  void region_end(Region& region) override;
  Status grant_begin(Grant& grant) override;
  std::string grant_blob(const Grant& grant) override;
  void grant_end(Grant& grant) override;
  Result<std::string> session_half(Session& session) override;
  Status session_begin(Session& session, std::string_view half) override;
  void session_end(Session& session) override;
  bool session_ended(Session& session) override;
  void op_begin(Op& op) override;
  void op_stop(Op& op) override;
  std::size_t poll() override;
  bool arm_backend() override;

  // verbs_session.cc
  Status open_rail(Link& link, Rail& rail);
  Status join_rail(Rail& rail, std::uint32_t queue, std::uint32_t packet, const ibv_ah_attr& path,
                   std::uint32_t mtu, std::uint32_t reads);
  // verbs_ops.cc
  const RemoteSlices* slices_of(Remote& remote);
  void post_ready(Link& link, Rail& rail);
  bool post_batch(Link& link, Rail& rail, Op& op);
  void add_request(Rail& rail, Op& op, const RemoteSlices& remote, Batch& batch);
  void post_answer(Link& link, Rail& rail);
  void settle(Op& op);
  std::size_t poll_link(Link& link);
  void completed(Link& link, const ibv_wc& wc);
  void received(Link& link, const ibv_wc& wc);

  std::unique_ptr<VerbsDevice> device_;
  std::uint32_t rails_ = 1;
  std::uint32_t depth_ = 0;       ///< work requests per rail
  std::uint32_t pieces_max_ = 1;  ///< scatter-gather entries per work request
  bool armed_ = false;
  std::vector<Link*> links_;
};

}  // namespace infos
